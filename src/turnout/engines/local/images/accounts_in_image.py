"""The users and groups that an image knows: its /etc/passwd and /etc/group, read from its layers."""

import contextlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from turnout.runner.images import ImageUser, number_of
from turnout.runner.supervisor.disk.in_root import open_in_root

_LONGEST = 1 << 20


def users(layers: Sequence[Path]) -> tuple[ImageUser, ...]:
    found: list[ImageUser] = []
    for line in _lines(layers, "etc/passwd"):
        match line.split(":"):
            case [name, _, uid, gid, _, home, *_]:
                user, group = number_of(uid), number_of(gid)
                if user is not None and group is not None:
                    found.append(ImageUser(name, user, group, home or "/"))
            case _:
                pass
    return tuple(found)


def groups(layers: Sequence[Path]) -> tuple[tuple[str, int], ...]:
    fields = (line.split(":") for line in _lines(layers, "etc/group"))
    numbers = ((one[0], number_of(one[2])) for one in fields if len(one) > 2)
    return tuple((name, gid) for name, gid in numbers if gid is not None)


def _lines(layers: Sequence[Path], path: str) -> list[str]:
    """The lines of a file of the image; none if it has no such file. No link leads out of a layer."""
    for layer in layers:
        with contextlib.suppress(OSError):
            root = os.open(layer, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                file = open_in_root(root, path)
            finally:
                os.close(root)
            try:
                # Otherwise it was deleted in this layer.
                regular = stat.S_ISREG(os.fstat(file).st_mode)
                return _read(file).splitlines() if regular else []
            finally:
                os.close(file)
    return []


def _read(file: int) -> str:
    with open(f"/proc/self/fd/{file}", "rb") as opened:
        return opened.read(_LONGEST).decode(errors="replace")
