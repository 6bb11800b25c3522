"""In: a big object's file until it is whole, and which of its pieces are there."""

import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from turnout.runner.stage.memory import this_boot
from turnout.runner.stage.portions import write_all
from turnout.runner.stage.sums import Crcs, file_digest

if TYPE_CHECKING:
    from turnout.runner.stage.files import Target
    from turnout.runner.stage.tally import Tally

PIECE = 8 << 20


class Head(msgspec.Struct):
    """Of the file that tells which pieces are there, one byte for each after this line."""

    etag: str
    size: int
    piece: int
    boot: str


class Draft:
    """Threads write to it, each its own pieces in their order. Once it is closed, what still comes goes nowhere."""

    def __init__(self, target: "Target", name: str, parts: tuple[str, ...], tally: "Tally") -> None:
        self._target = target
        self._name = name
        self._parts = parts
        self._tally = tally
        self._crcs = Crcs(PIECE)
        self._data = self._map = -1
        # The kernel lets one write to a file at a time, and others burn a core while they wait.
        self._writing = threading.Lock()

    def open(self, etag: str, size: int) -> None:
        """What is there of the same object stays. Raises TurnoutError."""
        head = msgspec.json.encode(Head(etag, size, PIECE, this_boot())) + b"\n"
        count = -(-size // PIECE)
        try:
            self._data = self._target.create(f"{self._name}.data")
            self._map = self._target.create(f"{self._name}.map")
            self._offset = len(head)
            there = os.pread(self._map, len(head) + count, 0)
            if there[: len(head)] == head and os.fstat(self._data).st_size == size:
                self.there = bytearray(there[len(head) :].ljust(count, b"\0"))
                return
            self.there = bytearray(count)
            os.ftruncate(self._map, 0)
            os.ftruncate(self._data, 0)
            os.posix_fallocate(self._data, 0, size)
            os.pwrite(self._map, head, 0)
        except OSError as error:
            raise self._target.explain(error, self._parts, size) from None

    def write(self, start: int, data: bytes, end: int) -> bool:
        """Whether anyone still wants it. `end`: of what is coming in this row."""
        whole: list[tuple[int, int]] = []
        for number, first, stop in _by_piece(start, start + len(data)):
            if first == number * PIECE:
                self._crcs.begin(number)
            self._crcs.add(number, data[first - start : stop - start])
            if stop in ((number + 1) * PIECE, end):
                whole.append((number, stop - number * PIECE))
        with self._writing:
            if self._data < 0:
                return False
            self._write(start, data)
            for number, size in whole:
                self._mark(number, size)
        return True

    def digest(self, kind: str, size: int) -> str:
        return self._crcs.value(self._data, size) if kind == "crc32c" else file_digest(kind, self._data, size)

    def spoilt(self) -> None:
        """Nothing of it is to be used again."""
        os.ftruncate(self._map, 0)

    def finish(self, mtime: int) -> None:
        """It is whole: it gets its name."""
        os.utime(self._data, ns=(mtime, mtime))
        self._target.place(f"{self._name}.data", self._parts)
        self._target.remove(f"{self._name}.map")

    def close(self) -> None:
        with self._writing:
            for descriptor in (self._data, self._map):
                if descriptor >= 0:
                    os.close(descriptor)
            self._data = self._map = -1

    def _write(self, at: int, data: bytes) -> None:
        try:
            write_all(self._data, data, at)
        except OSError as error:
            raise self._target.explain(error, self._parts, len(data)) from None

    def _mark(self, number: int, size: int) -> None:
        os.pwrite(self._map, b"\1", self._offset + number)
        self.there[number] = 1
        self._tally.moved(size)


def _by_piece(start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Number, start and end of what lies there of each piece."""
    while start < end:
        number = start // PIECE
        stop = min(end, (number + 1) * PIECE)
        yield number, start, stop
        start = stop
