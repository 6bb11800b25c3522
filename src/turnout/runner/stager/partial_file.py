"""Inbound: the file of a big object until it is complete, and the map of its finished pieces."""

import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from turnout.runner.stager.checksums import Crcs, file_digest
from turnout.runner.stager.transfer_log import this_boot
from turnout.runner.stager.write_size import write_all

if TYPE_CHECKING:
    from turnout.runner.stager.files import TargetDirectory
    from turnout.runner.stager.progress import ProgressCounter

PIECE = 8 << 20


class PieceMapHead(msgspec.Struct):
    """The first line of the map; one byte for each piece follows."""

    etag: str
    size: int
    piece: int
    boot: str


class PartialFile:
    """Several threads write to it, each its own pieces in order. Writes after `close` are ignored."""

    def __init__(
        self, target: "TargetDirectory", name: str, parts: tuple[str, ...], progress: "ProgressCounter"
    ) -> None:
        self._target = target
        self._name = name
        self._parts = parts
        self._progress = progress
        self._crcs = Crcs(PIECE)
        self._data = self._map = -1
        # The kernel serialises writes to a file, and waiting threads would spin.
        self._writing = threading.Lock()

    def open(self, etag: str, size: int) -> None:
        """Keeps finished pieces of the same object. Raises TurnoutError."""
        head = msgspec.json.encode(PieceMapHead(etag, size, PIECE, this_boot())) + b"\n"
        count = -(-size // PIECE)
        try:
            self._data = self._target.create(f"{self._name}.data")
            self._map = self._target.create(f"{self._name}.map")
            self._offset = len(head)
            content = os.pread(self._map, len(head) + count, 0)
            if content[: len(head)] == head and os.fstat(self._data).st_size == size:
                self.finished = bytearray(content[len(head) :].ljust(count, b"\0"))
                return
            self.finished = bytearray(count)
            os.ftruncate(self._map, 0)
            os.ftruncate(self._data, 0)
            os.posix_fallocate(self._data, 0, size)
            os.pwrite(self._map, head, 0)
        except OSError as error:
            raise self._target.explain(error, self._parts, size) from None

    def write(self, start: int, data: bytes, end: int) -> bool:
        """False once the file is closed. `end`: where the requested range ends."""
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

    def discard_pieces(self) -> None:
        """Discard all pieces."""
        os.ftruncate(self._map, 0)

    def finish(self, mtime: int) -> None:
        """Move the complete file to its final path."""
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
        self.finished[number] = 1
        self._progress.moved(size)


def _by_piece(start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(piece, start, end) of the range, cut at piece boundaries."""
    while start < end:
        number = start // PIECE
        stop = min(end, (number + 1) * PIECE)
        yield number, start, stop
        start = stop
