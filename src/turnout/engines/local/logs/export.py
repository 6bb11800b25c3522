"""Logs as files for people: each replica's two streams in one, in the order in which they were written."""

import os
from collections.abc import Callable
from pathlib import Path

from turnout.engines.local.log import FileLog

_PIECE = 1 << 20

Open = Callable[[str], int]
"""A file of this name, made if it is missing, for writing."""


class Exported:
    """One replica's. `write` adds what is there since the last time; the first time all is written anew."""

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
            # What came behind the last mark: the keeper was killed before it could make one.
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
