"""Bytes between sockets and files, in pieces of a megabyte, with the file's side of it in threads."""

import asyncio
import os
import re
from collections.abc import AsyncIterable, AsyncIterator, Callable
from functools import partial

from turnout.errors import Invalid, TurnoutError

PIECE = 1 << 20


class Reading:
    """A part of an open file as an asynchronous stream. Owns the descriptor: `close` it when it is done with."""

    def __init__(self, descriptor: int, start: int = 0, end: int = 0) -> None:
        self._descriptor = descriptor
        self._pread: Callable[[int, int], bytes] = partial(os.pread, descriptor)
        self._start = start
        self._end = end

    def use(self, pread: Callable[[int, int], bytes]) -> None:
        """Where the file's own bytes are not what is wanted: see `Embedded.pread`."""
        self._pread = pread

    def part(self, start: int, end: int) -> "Reading":
        self._start, self._end = start, end
        return self

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while self._start < self._end:
            wanted = min(PIECE, self._end - self._start)
            piece = await asyncio.to_thread(self._pread, wanted, self._start)
            if not piece:
                raise TurnoutError("the file became shorter while it was read")
            self._start += len(piece)
            yield piece

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


async def pour(body: AsyncIterable[bytes], write: Callable[[bytes], object]) -> int:
    """Write all of it, in pieces worth a thread's while. The number of bytes."""
    total = 0
    async for piece in gathered(body):
        await asyncio.to_thread(write, piece)
        total += len(piece)
    return total


async def gathered(body: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in fewer pieces. What came before a broken connection is handed out before the error."""
    pending: list[bytes] = []
    size = 0
    try:
        async for piece in body:
            pending.append(piece)
            size += len(piece)
            if size >= PIECE:
                yield b"".join(pending)
                pending, size = [], 0
    except Exception:
        if pending:
            yield b"".join(pending)
        raise
    if pending:
        yield b"".join(pending)


class Unsatisfiable(Invalid):
    """A range that lies outside of what there is."""


def byte_range(header: str, size: int) -> tuple[int, int] | None:
    """Start and end (exclusive) of a Range header. None: all of it, as for ranges in a form that nobody uses."""
    found = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", header.replace(" ", ""))
    if not found or found[0] == "bytes=-":
        return None
    first, last = found[1], found[2]
    if first and last and int(last) < int(first):
        return None
    start = int(first) if first else max(0, size - int(last))
    end = min(int(last) + 1, size) if first and last else size
    if start >= size:
        raise Unsatisfiable(f"the object has {size} bytes: there is nothing at {header}")
    return start, end
