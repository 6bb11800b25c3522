"""Streams between sockets and files. File access runs in threads."""

import asyncio
import os
import re
from collections.abc import AsyncIterable, AsyncIterator, Callable
from functools import partial
from typing import NamedTuple

from turnout import pools
from turnout.errors import Invalid, TurnoutError

PIECE = 256 << 10
_LARGEST = 1 << 20
_SHARED = 8 << 20


class ReadAhead:
    """How much of a file to read while a client still receives the piece before: more if it has received much.

    All streams share what they may hold beyond a small piece each, so that many slow clients take little memory.
    """

    _left = _SHARED

    def __init__(self) -> None:
        self._sent = self._held = 0

    def next(self, piece: int, rest: int) -> int:
        """`piece`: the bytes that are being sent; `rest`: those that are left. 0: read when the piece has been sent."""
        self._sent += piece
        ahead = min(rest, max(PIECE, min(self._sent, _LARGEST)))
        beyond = max(piece - PIECE, 0)
        if self._hold(beyond + ahead):
            return ahead
        # There was room for this piece when it was read.
        self._hold(min(beyond, self._held))
        return 0

    def close(self) -> None:
        self._hold(0)

    def _hold(self, size: int) -> bool:
        left = ReadAhead._left + self._held - size
        if left < 0:
            return False
        ReadAhead._left, self._held = left, size
        return True


class PlainPart(NamedTuple):
    project: str
    descriptor: int
    start: int
    end: int


class FileStream:
    """A part of an open file as an asynchronous stream. It owns the descriptor: call `close`."""

    def __init__(self, descriptor: int, project: str, pool: pools.ThreadPool = pools.disk) -> None:
        """`descriptor`: -1 if there is no file: call `use`. `pool`: where it is read."""
        self._descriptor = descriptor
        self._project = project
        self._pool = pool
        self._pread: Callable[[int, int], bytes] = partial(os.pread, descriptor)
        self._is_plain = True
        self._start = self._end = 0

    def use(self, pread: Callable[[int, int], bytes]) -> None:
        """Reads with this function instead of os.pread: see `EmbeddedStore.pread`."""
        self._pread = pread
        self._is_plain = False

    @property
    def plain(self) -> "PlainPart | None":
        """The part of the file, if its bytes are those of the stream."""
        if not self._is_plain or self._start >= self._end:
            return None
        return PlainPart(self._project, self._descriptor, self._start, self._end)

    def part(self, start: int, end: int) -> "FileStream":
        self._start, self._end = start, end
        return self

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """While a piece is sent, the next one is read."""
        ahead = ReadAhead()
        reading: asyncio.Future[bytes] | None = None
        try:
            while self._start < self._end:
                reading = reading or self._read(PIECE)
                piece = await reading
                if not piece:
                    raise TurnoutError("the file became shorter while it was read")
                self._start += len(piece)
                size = ahead.next(len(piece), self._end - self._start)
                reading = self._read(size) if size else None
                yield piece
        finally:
            ahead.close()
            if reading:  # the file is closed after this, and its descriptor may be reused
                await asyncio.wait((reading,))

    def _read(self, size: int) -> asyncio.Future[bytes]:
        size = min(size, self._end - self._start)
        return asyncio.ensure_future(self._pool.run(self._project, self._pread, size, self._start))

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


async def write_all(body: AsyncIterable[bytes], write: Callable[[bytes], object], project: str) -> int:
    """Writes the body in a thread, in large pieces. Returns the number of bytes."""
    total = 0
    async for piece in coalesced(body):
        await pools.disk.run(project, write, piece)
        total += len(piece)
    return total


async def coalesced(body: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in larger pieces. If the body raises, the bytes before the error are yielded first."""
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


class RangeNotSatisfiable(Invalid):
    """The range is outside of the object."""


def byte_range(header: str, size: int) -> tuple[int, int] | None:
    """Start and end (exclusive) of a Range header. None for the whole object, also for unusual forms of ranges."""
    found = _range(header)
    if found is None:
        return None
    first, last = found
    start = int(first) if first else max(0, size - int(last))
    end = min(int(last) + 1, size) if first and last else size
    if start >= size:
        raise RangeNotSatisfiable(f"{header} is outside of the object, which has {size} bytes")
    return start, end


def requested_range(header: str) -> tuple[int, int] | dict[str, int] | None:
    """A Range header as obstore takes it, without the size of the object. None for the whole object."""
    found = _range(header)
    if found is None:
        return None
    first, last = found
    if not first:
        return {"suffix": int(last)}
    return (int(first), int(last) + 1) if last else {"offset": int(first)}


def _range(header: str) -> tuple[str, str] | None:
    found = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", header.replace(" ", ""))
    if not found or found[0] == "bytes=-":
        return None
    first, last = found[1], found[2]
    return None if first and last and int(last) < int(first) else (first, last)
