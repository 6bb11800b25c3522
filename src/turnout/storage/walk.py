"""Down a path, one name at a time and never through a link.

Each directory is opened relative to the one before with O_NOFOLLOW. As `..` is never a name here, nothing that is
swapped for a link meanwhile can lead out.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from turnout.errors import Invalid

Owner = tuple[int, int]

_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def walk(root: Path, parts: tuple[str, ...], source: str, make: Owner | bool = False) -> Iterator[int]:
    """A descriptor (O_PATH) of the directory at the end. `make`: those that are missing are made, for this owner."""
    try:
        here = os.open(root, _STEP & ~os.O_NOFOLLOW)
    except OSError as error:
        raise _explained(error, source, str(root)) from None
    try:
        for part in parts:
            below = _step(here, part, source, make)
            os.close(here)
            here = below
        yield here
    finally:
        os.close(here)


def _step(here: int, name: str, source: str, make: Owner | bool) -> int:
    try:
        try:
            return os.open(name, _STEP, dir_fd=here)
        except FileNotFoundError:
            if make is False:
                raise
            _make(here, name, make)
            return os.open(name, _STEP, dir_fd=here)
    except OSError as error:
        raise _explained(error, source, name) from None


def _make(here: int, name: str, owner: Owner | bool) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o755, dir_fd=here)
    if isinstance(owner, bool):
        return
    made = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
    try:
        if os.fstat(made).st_uid == os.geteuid():
            os.fchown(made, *owner)
    finally:
        os.close(made)


def _explained(error: OSError, source: str, name: str) -> Invalid:
    if error.errno == errno.ENOENT:
        return Invalid(f"{source!r} does not exist: there is no {name!r}")
    if error.errno in (errno.ENOTDIR, errno.ELOOP):
        return Invalid(f"{source!r}: {name!r} is not a directory, or is a link, which is not followed")
    return Invalid(f"{source!r}: {name!r} cannot be used: {error.strerror}")
