"""A replica's log on disk: two files that the program itself appends to, and the supervisor's marks.

Without a sandbox the program can replace each of them. Anything but a regular file counts as empty, and however large a
file seems to be, only data that was written to it is read.
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
        return self._with_file(_STREAMS[stream], lambda file: file.end)

    def read(self, stream: int, offset: int, count: int) -> bytes:
        def read(file: _LogFile) -> bytes:
            before = file.hole[0] if file.hole and offset < file.hole[1] else file.end
            return file.read(offset, min(count, before - offset))

        return self._with_file(_STREAMS[stream], read)

    def hole(self, stream: int) -> tuple[int, int] | None:
        return self._with_file(_STREAMS[stream], lambda file: file.hole)

    def marks(self, first: int = 0, count: int | None = None) -> list[Mark]:
        def read(file: _LogFile) -> bytes:
            available = file.end // _MARK.size - first
            wanted = available if count is None else min(count, available)
            return file.read(first * _MARK.size, wanted * _MARK.size)

        data = self._with_file("marks", read)
        complete = len(data) // _MARK.size * _MARK.size
        return [Mark(*fields) for fields in _MARK.iter_unpack(data[:complete])]

    def mark_count(self) -> int:
        return self._with_file("marks", lambda file: file.end // _MARK.size)

    def _with_file(self, name: str, read: Callable[["_LogFile"], T]) -> T:
        path = f"{self._directory}/{name}"
        try:
            fd = os.open(path, _READ)
        except OSError:
            return read(_EMPTY)
        try:
            return read(_inspect(fd))
        finally:
            os.close(fd)


class _LogFile(NamedTuple):
    fd: int
    end: int
    """The end of the last data."""
    hole: tuple[int, int] | None
    """From the start of the first hole to the end of the last one. Data between two holes is left out.

    A hole was never written, or was released to save space.
    """

    def read(self, offset: int, count: int) -> bytes:
        if count <= 0:
            return b""
        try:
            return os.pread(self.fd, count, offset)
        except OSError:
            return b""


_EMPTY = _LogFile(-1, 0, None)


def _inspect(fd: int) -> _LogFile:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        return _EMPTY
    size = status.st_size
    hole: tuple[int, int] | None = None
    position = 0
    # Thousands of holes must not keep the reader busy: the log ends after the last one that is counted.
    for _ in range(_MOST_HOLES):
        start = _seek(fd, position, os.SEEK_HOLE) if position < size else size
        if start is None or start >= size:
            return _LogFile(fd, size, hole)
        position = _seek(fd, start, os.SEEK_DATA)
        if position is None:
            return _LogFile(fd, start, hole)
        hole = (hole[0] if hole else start, position)
    return _LogFile(fd, position, hole)


def _seek(fd: int, position: int, whence: int) -> int | None:
    """None: there is nothing of that kind after `position`."""
    try:
        return os.lseek(fd, position, whence)
    except OSError:
        return None
