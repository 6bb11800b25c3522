"""In: a big object, several pieces at a time, and only those that are not there yet."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import msgspec

from turnout.errors import TimedOut
from turnout.runner.stage.again import Broken, Lasting
from turnout.runner.stage.crew import each, on_thread
from turnout.runner.stage.memory import this_boot
from turnout.runner.stage.sums import Crcs, Expected, bare, file_digest

if TYPE_CHECKING:
    from obstore import GetResult, ObjectMeta

    from turnout.runner.stage.fetch import Fetch

PIECE = 8 << 20
_SPAN = 64 << 20
"""Of one request: many short ones cost the store more."""
_CHUNK = 1 << 20
"""What is in memory of each request."""
_HANDS = 4
_CHANGES = 3
"""So often may an object be replaced while it is fetched."""


class Head(msgspec.Struct):
    """Of the file that tells which pieces are there, one byte for each after this line."""

    etag: str
    size: int
    piece: int
    boot: str


class Replaced(Lasting):
    """The object is another one now."""


class Pieces:
    def __init__(self, fetch: "Fetch", key: str, url: str, parts: tuple[str, ...]) -> None:
        self._fetch = fetch
        self._key = key
        self._url = url
        self._parts = parts
        self._name = hashlib.sha1(key.encode(), usedforsecurity=False).hexdigest()
        self._data = self._map = -1
        # The kernel lets one write to a file at a time, and others burn a core while they wait.
        self._writing = asyncio.Lock()

    async def run(self) -> None:
        for _ in range(_CHANGES):
            try:
                return await self._fetch.patience.insist(self._all, self._url)
            except Replaced:
                continue
        raise TimedOut(f"{self._url}: it is replaced again and again while it is fetched")

    async def _all(self) -> None:
        head = await self._fetch.patience.insist(self._ask, self._url)
        meta = head.meta
        wanted = self._fetch.expects(meta["e_tag"], head)
        try:
            await on_thread(self._open, meta)
            self._crcs = Crcs(PIECE)
            await each(self._missing(meta["size"]), lambda span: self._span(*span, meta), _HANDS)
            await on_thread(self._finish, meta, wanted)
        finally:
            for fd in (self._data, self._map):
                if fd >= 0:
                    os.close(fd)
            self._data = self._map = -1

    async def _ask(self) -> "GetResult":
        return await self._fetch.store.get_async(self._key, options={"head": True})

    def _open(self, meta: "ObjectMeta") -> None:
        from turnout.runner.stage.fetch import modified

        target, size = self._fetch.target, meta["size"]
        self._mtime = modified(meta)
        head = msgspec.json.encode(Head(meta["e_tag"] or str(self._mtime), size, PIECE, this_boot())) + b"\n"
        count = -(-size // PIECE)
        try:
            self._data = target.create(f"{self._name}.data")
            self._map = target.create(f"{self._name}.map")
            self._offset = len(head)
            there = os.pread(self._map, len(head) + count, 0)
            if there[: len(head)] == head and os.fstat(self._data).st_size == size:
                self._there = bytearray(there[len(head) :].ljust(count, b"\0"))
                return
            self._there = bytearray(count)
            os.ftruncate(self._map, 0)
            os.ftruncate(self._data, 0)
            os.posix_fallocate(self._data, 0, size)
            os.pwrite(self._map, head, 0)
        except OSError as error:
            raise target.explain(error, self._parts, size) from None

    async def _missing(self, size: int) -> AsyncIterator[tuple[int, int]]:
        """Pieces in a row, as (first, end)."""
        most = max(1, min(_SPAN // PIECE, -(-len(self._there) // _HANDS)))
        first = 0
        while first < len(self._there):
            if self._there[first]:
                self._fetch.tally.kept(min(PIECE, size - first * PIECE))
                first += 1
                continue
            end = first + 1
            while end < min(first + most, len(self._there)) and not self._there[end]:
                end += 1
            yield first, end
            first = end

    async def _span(self, first: int, end: int, meta: "ObjectMeta") -> None:
        """Its pieces come in order: what broke off goes on at the first that is not there."""

        def there() -> int:
            return sum(self._there[first:end])

        async def rest() -> None:
            await self._get((first + there()) * PIECE, min(end * PIECE, meta["size"]), meta)

        await self._fetch.patience.insist(rest, self._url, there)

    async def _get(self, start: int, end: int, meta: "ObjectMeta") -> None:
        async with self._fetch.room.take(2 * _CHUNK):
            try:
                result = await self._fetch.store.get_async(
                    self._key, options={"range": (start, end), "if_match": meta["e_tag"]}
                )
            except Exception as error:
                if type(error).__name__ == "PreconditionError":
                    raise Replaced from None
                raise
            if bare(result.meta["e_tag"]) != bare(meta["e_tag"]):
                raise Replaced
            at = start
            async for data in result.stream(_CHUNK):
                async with self._writing:
                    await on_thread(self._write, at, data, end)
                at += len(data)
            if at != end:
                raise Broken(f"{self._url}: {at - start} bytes came instead of {end - start}")

    def _write(self, start: int, data: bytes, end: int) -> None:
        view, at = memoryview(data), start
        try:
            while view.nbytes:
                written = os.pwrite(self._data, view, at)
                view, at = view[written:], at + written
        except OSError as error:
            raise self._fetch.target.explain(error, self._parts, len(data)) from None
        while start < at:
            number, into = divmod(start, PIECE)
            stop = min(at, (number + 1) * PIECE)
            if not into:
                self._crcs.begin(number)
            self._crcs.add(number, data[: stop - start] if stop < at else data)
            data, start = data[stop - start :], stop
            if stop == (number + 1) * PIECE or stop == end:
                self._mark(number, stop - number * PIECE)

    def _mark(self, number: int, size: int) -> None:
        os.pwrite(self._map, b"\1", self._offset + number)
        self._there[number] = 1
        self._fetch.tally.moved(size)

    def _finish(self, meta: "ObjectMeta", wanted: Expected) -> None:
        target = self._fetch.target
        try:
            if wanted.kind:
                self._fetch.compare(self._key, self._url, wanted, self._digest(wanted.kind, meta["size"]))
        except Broken:
            os.ftruncate(self._map, 0)
            raise
        os.utime(self._data, ns=(self._mtime, self._mtime))
        target.place(f"{self._name}.data", self._parts)
        target.remove(f"{self._name}.map")
        self._fetch.remember(self._parts, meta, self._mtime)

    def _digest(self, kind: str, size: int) -> str:
        if kind == "crc32c":
            return self._crcs.value(self._data, size)
        return file_digest(kind, self._data, size)
