"""A replica's log as it lies on disk: two files that the program itself appends to, and the keeper's marks.

Without a sandbox the program can put anything in the place of each. What is not a regular file counts as empty, and
however large a file seems to be, only what was really written to it is read.
"""

import contextlib
import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from turnout.engines import Mark

_MARK = struct.Struct("<QQQ")
_STREAMS = ("stdout", "stderr")
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_MOST_HOLES = 64


class FileLog:
    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)

    def size(self, stream: int) -> int:
        with self._open(_STREAMS[stream]) as file:
            return file.end

    def read(self, stream: int, offset: int, count: int) -> bytes:
        with self._open(_STREAMS[stream]) as file:
            before = file.hole[0] if file.hole and offset < file.hole[1] else file.end
            return file.read(offset, min(count, before - offset))

    def hole(self, stream: int) -> tuple[int, int] | None:
        with self._open(_STREAMS[stream]) as file:
            return file.hole

    def marks(self, first: int = 0, count: int | None = None) -> list[Mark]:
        with self._open("marks") as file:
            there = file.end // _MARK.size - first
            wanted = there if count is None else min(count, there)
            data = file.read(first * _MARK.size, wanted * _MARK.size)
        whole = len(data) // _MARK.size * _MARK.size
        return [Mark(*fields) for fields in _MARK.iter_unpack(data[:whole])]

    def mark_count(self) -> int:
        with self._open("marks") as file:
            return file.end // _MARK.size

    @contextlib.contextmanager
    def _open(self, name: str) -> Iterator["_File"]:
        try:
            fd = os.open(f"{self._directory}/{name}", _READ)
        except OSError:
            yield _NOTHING
            return
        try:
            yield _measure(fd)
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


def _seek(fd: int, position: int, whence: int) -> int | None:
    """None: there is none behind `position`."""
    try:
        return os.lseek(fd, position, whence)
    except OSError:
        return None
