"""Reads files that a program wrote into its scratch directories, with or without a sandbox, or in an image."""

import contextlib
import os
import posixpath
import stat
from pathlib import Path

from turnout.runner.supervisor.replicas.roots import UPPER
from turnout.runner.targets import FARM

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read(home: Path, path: str, most: int) -> bytes:
    """The beginning of the file; empty: there is none. Follows no link and reads regular files only, because the
    program owns the directories.
    """
    name = posixpath.basename(path)
    try:
        numbers = sorted(os.listdir(home / "space/scratch"))
    except OSError:
        numbers = []
    for parts in (
        *(("space", "scratch", number, name) for number in numbers),
        (*FARM.split("/"), *path.split("/")[1:]),
        (*UPPER.split("/"), *path.split("/")[1:]),
    ):
        if data := _read(home, parts, most):
            return data
    return b""


def _read(home: Path, parts: tuple[str, ...], most: int) -> bytes:
    with contextlib.ExitStack() as opened, contextlib.suppress(OSError):
        directory = os.open(home, _DIRECTORY)
        opened.callback(os.close, directory)
        for part in parts[:-1]:
            directory = os.open(part, _DIRECTORY, dir_fd=directory)
            opened.callback(os.close, directory)
        file = os.open(parts[-1], _FILE, dir_fd=directory)
        opened.callback(os.close, file)
        return os.read(file, most) if stat.S_ISREG(os.fstat(file).st_mode) else b""
    return b""
