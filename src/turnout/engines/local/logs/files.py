"""A replica's log as it lies on disk: two files that the program itself appends to, and the keeper's marks.

Without a sandbox the program can put anything in the place of each. What is not a regular file counts as empty, and
however large a file seems to be, only what was really written to it is read.
"""

import os
import stat
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from turnout.engines import Mark

T = TypeVar("T")

_MARK = struct.Struct("<QQQ")
_STREAMS = ("stdout", "stderr")
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_MOST_HOLES = 64


class FileLog:
    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)

    def size(self, stream: int) -> int:
        return self._look(_STREAMS[stream], lambda file: file.end)

    def read(self, stream: int, offset: int, count: int) -> bytes:
        def read(file: _File) -> bytes:
            before = file.hole[0] if file.hole and offset < file.hole[1] else file.end
            return file.read(offset, min(count, before - offset))

        return self._look(_STREAMS[stream], read)

    def hole(self, stream: int) -> tuple[int, int] | None:
        return self._look(_STREAMS[stream], lambda file: file.hole)

    def marks(self, first: int = 0, count: int | None = None) -> list[Mark]:
        def read(file: _File) -> bytes:
            there = file.end // _MARK.size - first
            wanted = there if count is None else min(count, there)
            return file.read(first * _MARK.size, wanted * _MARK.size)

        data = self._look("marks", read)
        whole = len(data) // _MARK.size * _MARK.size
        return [Mark(*fields) for fields in _MARK.iter_unpack(data[:whole])]

    def mark_count(self) -> int:
        return self._look("marks", lambda file: file.end // _MARK.size)

    def _look(self, name: str, what: Callable[["_File"], T]) -> T:
        path = f"{self._directory}/{name}"
        try:
            fd = os.open(path, _READ)
        except OSError:
            return what(_NOTHING)
        try:
            found = what(_measure(fd))
            # The keeper uses the directory of one that has printed nothing again, for another job. If it had done so
            # before we looked, the file is not here any more.
            return found if _is_at(fd, path) else what(_NOTHING)
        finally:
            os.close(fd)


class _File(NamedTuple):
    fd: int
    end: int
    """Where the last that was written ends."""
    hole: tuple[int, int] | None
    """From the first byte that was never written or given up to the last; what lies between two holes is left out."""

    def read(self, offset: int, count: int) -> bytes:
        if count <= 0:
            return b""
        try:
            return os.pread(self.fd, count, offset)
        except OSError:
            return b""


_NOTHING = _File(-1, 0, None)


def _measure(fd: int) -> _File:
    about = os.fstat(fd)
    if not stat.S_ISREG(about.st_mode):
        return _NOTHING
    size = about.st_size
    hole: tuple[int, int] | None = None
    position = 0
    # Who makes thousands of holes must not keep us counting: the log ends behind the last that we look at.
    for _ in range(_MOST_HOLES):
        start = _seek(fd, position, os.SEEK_HOLE) if position < size else size
        if start is None or start >= size:
            return _File(fd, size, hole)
        position = _seek(fd, start, os.SEEK_DATA)
        if position is None:
            return _File(fd, start, hole)
        hole = (hole[0] if hole else start, position)
    return _File(fd, position, hole)


def _is_at(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except OSError:
        return False


def _seek(fd: int, position: int, whence: int) -> int | None:
    """None: there is none behind `position`."""
    try:
        return os.lseek(fd, position, whence)
    except OSError:
        return None
