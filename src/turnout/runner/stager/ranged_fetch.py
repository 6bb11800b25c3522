"""Inbound: fetches a big object by concurrent range requests, skipping pieces that are complete."""

import hashlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from turnout.errors import TimedOut
from turnout.runner.stager.checksums import Expected, bare
from turnout.runner.stager.partial_file import PIECE, PartialFile
from turnout.runner.stager.retry import Corrupt, Permanent
from turnout.runner.stager.workers import for_each, on_detached_thread, on_thread

if TYPE_CHECKING:
    from obstore import BytesStream, GetResult, ObjectMeta

    from turnout.runner.stager.fetch import Fetch

_SPAN = 64 << 20
"""Bytes per request: many short requests cost the store more."""
_CHUNK = 1 << 20
"""Bytes of each request that are in memory."""
_WORKERS = 4
_CHANGES = 3
"""How often an object may be replaced while it is fetched."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Replaced(Permanent):
    """The object has been replaced."""


class RangedFetch:
    def __init__(self, fetch: "Fetch", key: str, url: str, parts: tuple[str, ...]) -> None:
        self._fetch = fetch
        self._key = key
        self._url = url
        self._parts = parts
        self._name = hashlib.sha1(key.encode(), usedforsecurity=False).hexdigest()

    async def run(self) -> None:
        for _ in range(_CHANGES):
            try:
                return await self._fetch.retries.run(self._fetch_all, self._url)
            except Replaced:
                continue
        raise TimedOut(f"{self._url}: the object was replaced {_CHANGES} times while it was fetched")

    async def _fetch_all(self) -> None:
        head = await self._fetch.retries.run(self._head, self._url)
        meta, mtime = head.meta, nanoseconds(head.meta["last_modified"])
        wanted = self._fetch.expects(meta["e_tag"], head.attributes)
        # A new PartialFile for each attempt: an abandoned thread must find its own closed.
        partial = PartialFile(self._fetch.target, self._name, self._parts, self._fetch.progress)
        try:
            await on_thread(partial.open, meta["e_tag"] or str(mtime), meta["size"])
            missing = self._missing(partial, meta["size"])
            await for_each(missing, lambda span: self._span(*span, partial, meta), _WORKERS)
            await on_thread(self._finish, partial, meta, mtime, wanted)
        finally:
            await on_thread(partial.close)

    async def _head(self) -> "GetResult":
        return await self._fetch.store.get_async(self._key, options={"head": True})

    async def _missing(self, partial: PartialFile, size: int) -> AsyncIterator[tuple[int, int]]:
        """Runs of missing pieces, as (first, end)."""
        finished = partial.finished
        most = max(1, min(_SPAN // PIECE, -(-len(finished) // _WORKERS)))
        first = 0
        while first < len(finished):
            if finished[first]:
                self._fetch.progress.kept(min(PIECE, size - first * PIECE))
                first += 1
                continue
            end = first + 1
            while end < min(first + most, len(finished)) and not finished[end]:
                end += 1
            yield first, end
            first = end

    async def _span(self, first: int, end: int, partial: PartialFile, meta: "ObjectMeta") -> None:
        """Pieces arrive in order, so a retry resumes at the first missing one."""

        def finished() -> int:
            return sum(partial.finished[first:end])

        async def rest() -> None:
            start = (first + finished()) * PIECE
            async with self._fetch.budget.reserve(2 * _CHUNK):
                await on_detached_thread(self._get, start, min(end * PIECE, meta["size"]), partial, meta)

        await self._fetch.retries.run(rest, self._url, finished)

    def _get(self, start: int, end: int, partial: PartialFile, meta: "ObjectMeta") -> None:
        """Runs on a thread of its own: with an event loop turn per chunk it would take half as much CPU again."""
        at = start
        for data in self._fetch.direct.range(self._key, meta["e_tag"], start, end, _CHUNK):
            if not partial.write(at, data, end):
                return
            at += len(data)
        if at == end:
            return
        for data in self._stream(at, end, meta):
            if not partial.write(at, data, end):
                return
            at += len(data)
        if at != end:
            raise Corrupt(f"{self._url}: received {at - start} bytes instead of {end - start}")

    def _stream(self, start: int, end: int, meta: "ObjectMeta") -> "BytesStream":
        try:
            result = self._fetch.store.get(
                self._key, options={"range": (start, end), "if_match": meta["e_tag"]}
            )
        except Exception as error:
            if type(error).__name__ == "PreconditionError":
                raise Replaced from None
            raise
        if bare(result.meta["e_tag"]) != bare(meta["e_tag"]):
            raise Replaced
        return result.stream(_CHUNK)

    def _finish(self, partial: PartialFile, meta: "ObjectMeta", mtime: int, wanted: Expected) -> None:
        try:
            if wanted.kind:
                got = partial.digest(wanted.kind, meta["size"])
                self._fetch.compare(self._key, self._url, wanted, got)
        except Corrupt:
            partial.discard_pieces()
            raise
        partial.finish(mtime)
        self._fetch.remember(self._parts, meta["e_tag"], meta["size"], mtime)


def nanoseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1) * 1000
