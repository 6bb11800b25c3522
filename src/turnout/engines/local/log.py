"""A replica's log as it lies on disk: two files that the program itself appends to, and the keeper's marks."""

import os
import struct
from pathlib import Path

from turnout.engines import Mark

_MARK = struct.Struct("<QQQ")
_STREAMS = ("stdout", "stderr")


class FileLog:
    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)

    def size(self, stream: int) -> int:
        return _size(f"{self._directory}/{_STREAMS[stream]}")

    def read(self, stream: int, offset: int, count: int) -> bytes:
        try:
            fd = os.open(f"{self._directory}/{_STREAMS[stream]}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return b""
        try:
            hole = _hole(fd)
            if hole and offset < hole[1]:
                count = min(count, max(0, hole[0] - offset))
            return os.pread(fd, count, offset)
        finally:
            os.close(fd)

    def hole(self, stream: int) -> tuple[int, int] | None:
        try:
            fd = os.open(f"{self._directory}/{_STREAMS[stream]}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        try:
            return _hole(fd)
        finally:
            os.close(fd)

    def marks(self, first: int = 0, count: int | None = None) -> list[Mark]:
        try:
            fd = os.open(f"{self._directory}/marks", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return []
        try:
            there = os.fstat(fd).st_size // _MARK.size - first
            wanted = there if count is None else min(count, there)
            data = os.pread(fd, wanted * _MARK.size, first * _MARK.size) if wanted > 0 else b""
        finally:
            os.close(fd)
        return [Mark(*fields) for fields in _MARK.iter_unpack(data)]

    def mark_count(self) -> int:
        return _size(f"{self._directory}/marks") // _MARK.size


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _hole(fd: int) -> tuple[int, int] | None:
    size = os.fstat(fd).st_size
    start = os.lseek(fd, 0, os.SEEK_HOLE) if size else 0
    if start >= size:
        return None
    try:
        return start, os.lseek(fd, start, os.SEEK_DATA)
    except OSError:
        # A file that ends in a hole was being trimmed at this moment, or is not ours: nothing to tell yet.
        return None
