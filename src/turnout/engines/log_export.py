"""Writes a replica's log to one file, both streams in the order of time."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

from turnout.engines.log_files import FileLog

_PIECE = 1 << 20

Open = Callable[[str], int]
"""Opens a file of this name for writing. Creates it if it is missing."""


class ReplicaLogExport:
    """The file of one replica. `write` appends what is new; the first time, it writes the whole file."""

    def __init__(self, directory: Path, name: str) -> None:
        self._log = FileLog(directory)
        self.name = name
        self._marks = 0
        self._sizes = [0, 0]
        self._size = 0

    def write(self, open_file: Open, *, final: bool) -> None:
        """Raises OSError."""
        marks = self._log.marks(self._marks)
        targets = [(mark.stdout, mark.stderr) for mark in marks]
        if final:
            # There is more after the last mark if the supervisor was killed before it wrote the next.
            targets.append((self._log.size(0), self._log.size(1)))
        if not targets and self._size:
            return
        fd = open_file(self.name)
        try:
            if self._size == 0:
                os.ftruncate(fd, 0)
            for target in targets:
                for stream, until in enumerate(target):
                    self._add(fd, stream, until)
        finally:
            os.close(fd)
        self._marks += len(marks)

    def _add(self, fd: int, stream: int, until: int) -> None:
        while self._sizes[stream] < until:
            at = self._sizes[stream]
            hole = self._log.hole(stream)
            if hole and hole[0] <= at < hole[1]:
                self._sizes[stream] = hole[1]
                continue
            piece = self._log.read(stream, at, min(_PIECE, until - at))
            if not piece:
                return
            os.pwrite(fd, piece, self._size)
            self._size += len(piece)
            self._sizes[stream] += len(piece)


def open_log_file(directory: int, name: str, owner: tuple[int, int] | None) -> int:
    """Opens or creates a file in a directory that jobs can write to. Follows no link and never blocks.

    Only a new file gets the owner: a job may have put a hard link to another user's file there.
    """
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o640, dir_fd=directory)
    except FileExistsError:
        fd = os.open(name, flags, dir_fd=directory)
        status = os.fstat(fd)
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
            return fd
        os.close(fd)
        raise OSError(errno.EEXIST, "exists and is not a regular file with one name", name) from None
    if owner:
        os.fchown(fd, *owner)
        os.fchmod(fd, 0o660)
    return fd
