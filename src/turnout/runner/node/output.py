"""What the program printed: two files, and what of them the service has.

A position counts the bytes that the program ever wrote to a stream. If the service is away for too long, bytes are lost
before they were sent. They form a gap. The offsets that the service knows leave gaps out.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import Dict, List, NamedTuple, Tuple

from . import kernel
from .home import Home

STREAMS = ("stdout", "stderr")
BATCH = 1 << 20
"""Bytes in one call at most."""
_HEAD = 1 << 20
_KEPT = 64 << 20
"""Acknowledged bytes that stay on disk."""
_PAGE = 4096
_APART = 1_000_000
"""Nanoseconds between two marks at least, so that the lines of one mark can get different times."""
_MOST_MARKS, _MARKS_IN_BATCH = 1 << 16, 1 << 12


class Piece(NamedTuple):
    stream: int
    offset: int
    data: bytes


class Batch(NamedTuple):
    pieces: List[Piece]
    marks: List[List[int]]


class Stream:
    def __init__(self, path: str) -> None:
        """Raises OSError."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._writer = os.open(path, flags, 0o600)
        self._reader = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.end = 0
        self.taken = 0
        """All before it was handed to the sender."""
        self._gaps: List[Tuple[int, int]] = []
        self._punched = 0

    def append(self, data: bytes) -> int:
        """Returns how many bytes it took. Raises OSError."""
        wrote = os.write(self._writer, data)
        self.end += wrote
        return wrote

    def offset(self, position: int) -> int:
        return position - sum(min(position, end) - start for start, end in self._gaps if position > start)

    def take(self, most: int) -> bytes:
        """The next bytes, at most so many and only up to the next gap."""
        until = self.end
        for start, end in self._gaps:
            if start <= self.taken < end:
                self.taken = end
            elif start > self.taken:
                until = min(until, start)
        data = os.pread(self._reader, max(min(most, until - self.taken), 0), self.taken)
        if not data and self.taken < until:
            # Somebody truncated the file. What is gone must not stop the rest.
            self._lose(self.taken, until)
            self.taken = until
        self.taken += len(data)
        return data

    def pending(self) -> bool:
        return self.offset(self.taken) < self.offset(self.end)

    def acknowledge(self, size: int) -> None:
        """The service has so many bytes: go on from there, and give back disk space."""
        position = size
        for start, end in self._gaps:
            if position >= start:
                position += end - start
        self.taken = min(position, self.end)
        until = (self.taken - _KEPT) // _PAGE * _PAGE
        if until - self._punched >= _KEPT // 4:
            kernel.punch_hole(self._writer, self._punched, until - self._punched)
            self._punched = until

    def trim(self, limit: int) -> bool:
        """If more than `limit` bytes wait, drops all but the first MiB and the newest. Returns whether it did."""
        if self.offset(self.end) - self.offset(self.taken) <= limit:
            return False
        start = self.taken + _HEAD
        if self._gaps and self._gaps[-1][1] > self.taken:
            start = max(start, self._gaps[-1][1])
        end = self.end - limit // 2
        if end <= start:
            return False
        self._lose(start, end)
        first = -(-start // _PAGE) * _PAGE
        kernel.punch_hole(self._writer, first, end // _PAGE * _PAGE - first)
        return True

    def close(self) -> None:
        os.close(self._writer)
        os.close(self._reader)

    def _lose(self, start: int, end: int) -> None:
        self._gaps = [gap for gap in self._gaps if gap[0] < start]
        if self._gaps and self._gaps[-1][1] >= start:
            start = self._gaps.pop()[0]
        self._gaps.append((start, end))


class Output:
    """Both streams and their marks. `changed` is notified when there is something to send."""

    def __init__(self, home: Home, limit: int = 1 << 30) -> None:
        """Raises OSError."""
        self.paths = [home / name for name in STREAMS]
        self._streams = [Stream(path) for path in self.paths]
        self._limit = max(limit, 2 * _HEAD)
        self._marks: List[Tuple[int, int, int]] = []
        self._marked = (0, 0)
        self._at = 0
        self._trimmed = False
        self._changed = threading.Condition()

    @property
    def changed(self) -> threading.Condition:
        return self._changed

    @property
    def limit(self) -> int:
        """Bytes of each stream that may wait for the service."""
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._limit = max(limit, 2 * _HEAD)

    def append(self, stream: int, data: bytes) -> int:
        """Returns how many bytes it took. Raises OSError."""
        with self._changed:
            return self._streams[stream].append(data)

    def mark(self) -> bool:
        """Notes how much there is now. Returns whether there is more than before."""
        with self._changed:
            ends = (self._streams[0].end, self._streams[1].end)
            if ends == self._marked:
                return False
            self._at = max(time.time_ns(), self._at + _APART)
            self._marked = ends
            self._marks.append((self._at, *ends))
            if len(self._marks) > _MOST_MARKS:
                del self._marks[: _MOST_MARKS // 2 : 2]
            trimmed = [stream.trim(self._limit) for stream in self._streams]
            self._changed.notify_all()
        if any(trimmed) and not self._trimmed:
            self._trimmed = True
            self.write_line(
                f"turnout: more than {self._limit} bytes of output waited for the service; "
                "the first MiB of them and the newest part are kept"
            )
        return True

    def pending(self) -> bool:
        return any(stream.pending() for stream in self._streams) or bool(self._marks)

    def take(self) -> Batch:
        """What is to be sent next."""
        with self._changed:
            pieces: List[Piece] = []
            room = BATCH
            for number, stream in enumerate(self._streams):
                while room:
                    data = stream.take(room)
                    if not data:
                        break
                    room -= len(data)
                    pieces.append(Piece(number, stream.offset(stream.taken) - len(data), data))
            out, err = self._streams
            count = 0
            for _, out_end, err_end in self._marks[:_MARKS_IN_BATCH]:
                if out.offset(out_end) > out.offset(out.taken) or err.offset(err_end) > err.offset(err.taken):
                    break
                count += 1
            marks = [[at, out.offset(o), err.offset(e)] for at, o, e in self._marks[:count]]
            del self._marks[:count]
            return Batch(pieces, marks)

    def acknowledge(self, sizes: List[int]) -> None:
        with self._changed:
            for stream, size in zip(self._streams, sizes):
                stream.acknowledge(size)

    def sizes(self) -> List[int]:
        """As the service counts them."""
        with self._changed:
            return [stream.offset(stream.end) for stream in self._streams]

    def write_line(self, text: str) -> None:
        """Adds a line to stderr."""
        with contextlib.suppress(OSError):  # the disk is full
            self.append(1, text.encode() + b"\n")
            self.mark()

    def close(self) -> None:
        for stream in self._streams:
            stream.close()


def describe(batch: Batch) -> Dict[str, object]:
    pieces = [
        {"stream": piece.stream, "offset": piece.offset, "size": len(piece.data)} for piece in batch.pieces
    ]
    return {"pieces": pieces, "marks": batch.marks}
