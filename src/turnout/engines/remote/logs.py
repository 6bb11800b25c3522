"""The logs of replicas on a cluster: what their runners send, in the same files as the logs of the local engine."""

import os
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from turnout.engines.log_files import FileLog
from turnout.job import Attempt, ReplicaName
from turnout.paths import Paths
from turnout.runner.supervisor.logs.marks import PlainLog

_FILES = "files"
_ATTEMPT = re.compile(r"[0-9]{1,19}\.[0-9]{1,9}")


class Piece(NamedTuple):
    stream: int
    offset: int
    data: bytes


class RunnerMark(NamedTuple):
    at: int
    stdout: int
    stderr: int


class Written(NamedTuple):
    sizes: tuple[int, int]
    trimmed: bool
    """The middle was dropped, because the log has reached its limit."""


class ReplicaLogs:
    """All calls block."""

    def __init__(self, paths: Paths, log_bytes: int) -> None:
        self._paths = paths
        self._limit = log_bytes

    def read(self, attempt: Attempt, replica: ReplicaName) -> FileLog:
        return FileLog(self._paths.replica(attempt, replica))

    def append(
        self, attempt: Attempt, replica: ReplicaName, pieces: Sequence[Piece], marks: Sequence[RunnerMark]
    ) -> Written:
        """Appends what is new. A piece that was written before, or follows one that is missing, changes nothing.

        A runner's clock may be wrong: no mark is later than now. Raises OSError.
        """
        log = PlainLog(str(self._make(attempt, replica)), self._limit)
        try:
            for piece in pieces:
                size = os.fstat(log.streams[piece.stream]).st_size
                if piece.offset <= size:
                    _write_whole(log.streams[piece.stream], piece.data[size - piece.offset :])
            sizes = (os.fstat(log.streams[0]).st_size, os.fstat(log.streams[1]).st_size)
            now = time.time_ns()
            for mark in marks:
                if mark.stdout <= sizes[0] and mark.stderr <= sizes[1]:
                    log.add_mark(min(mark.at, now), mark.stdout, mark.stderr)
            return Written(sizes, log.trim())
        finally:
            log.close()

    def finish(self, attempt: Attempt, replica: ReplicaName) -> None:
        """The last mark covers everything, and the log is on disk. Raises OSError."""
        log = PlainLog(str(self._make(attempt, replica)), self._limit)
        try:
            log.mark()
            for fd in log.streams:
                os.fsync(fd)
        finally:
            log.close()

    def keep_file(self, attempt: Attempt, replica: ReplicaName, name: str, data: bytes) -> None:
        """Keeps a file of the program, for `read_file`."""
        directory = self._make(attempt, replica) / _FILES
        directory.mkdir(mode=0o700, exist_ok=True)
        fresh = directory / f".{name}"
        fresh.write_bytes(data)
        fresh.rename(directory / name)

    def read_file(self, attempt: Attempt, replica: ReplicaName, name: str, most: int) -> bytes:
        try:
            with (self._paths.replica(attempt, replica) / _FILES / name).open("rb") as file:
                return file.read(most)
        except OSError:
            return b""

    def attempts(self) -> list[Attempt]:
        """Those that have logs on disk."""
        names = (name.partition("_")[0] for name in os.listdir(self._paths.attempts) if "_" in name)
        return sorted({Attempt.parse(name) for name in names if _ATTEMPT.fullmatch(name)})

    def forget(self, attempt: Attempt) -> None:
        """Removes what is not a log."""
        for path in self._paths.attempts.glob(f"{attempt}_*/{_FILES}"):
            shutil.rmtree(path, ignore_errors=True)

    def remove(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            for path in self._paths.attempts.glob(f"{attempt}_*"):
                shutil.rmtree(path, ignore_errors=True)

    def _make(self, attempt: Attempt, replica: ReplicaName) -> Path:
        path = self._paths.replica(attempt, replica)
        path.mkdir(mode=0o700, exist_ok=True)
        return path


def _write_whole(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
