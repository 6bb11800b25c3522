"""In: a big object, several pieces at a time, and only those that are not there yet."""

import hashlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from turnout.errors import TimedOut
from turnout.runner.stage.again import Broken, Lasting
from turnout.runner.stage.crew import aside, each, on_thread
from turnout.runner.stage.draft import PIECE, Draft
from turnout.runner.stage.sums import Expected, bare

if TYPE_CHECKING:
    from obstore import BytesStream, GetResult, ObjectMeta

    from turnout.runner.stage.fetch import Fetch

_SPAN = 64 << 20
"""Of one request: many short ones cost the store more."""
_CHUNK = 1 << 20
"""What is in memory of each request."""
_HANDS = 4
_CHANGES = 3
"""So often may an object be replaced while it is fetched."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Replaced(Lasting):
    """The object is another one now."""


class Pieces:
    def __init__(self, fetch: "Fetch", key: str, url: str, parts: tuple[str, ...]) -> None:
        self._fetch = fetch
        self._key = key
        self._url = url
        self._parts = parts
        self._name = hashlib.sha1(key.encode(), usedforsecurity=False).hexdigest()

    async def run(self) -> None:
        for _ in range(_CHANGES):
            try:
                return await self._fetch.patience.insist(self._all, self._url)
            except Replaced:
                continue
        raise TimedOut(f"{self._url}: it is replaced again and again while it is fetched")

    async def _all(self) -> None:
        head = await self._fetch.patience.insist(self._ask, self._url)
        meta, mtime = head.meta, nanoseconds(head.meta["last_modified"])
        wanted = self._fetch.expects(meta["e_tag"], head.attributes)
        # A new one each time: a thread that was left behind must find its own closed.
        draft = Draft(self._fetch.target, self._name, self._parts, self._fetch.tally)
        try:
            await on_thread(draft.open, meta["e_tag"] or str(mtime), meta["size"])
            missing = self._missing(draft, meta["size"])
            await each(missing, lambda span: self._span(*span, draft, meta), _HANDS)
            await on_thread(self._finish, draft, meta, mtime, wanted)
        finally:
            await on_thread(draft.close)

    async def _ask(self) -> "GetResult":
        return await self._fetch.store.get_async(self._key, options={"head": True})

    async def _missing(self, draft: Draft, size: int) -> AsyncIterator[tuple[int, int]]:
        """Pieces in a row, as (first, end)."""
        there = draft.there
        most = max(1, min(_SPAN // PIECE, -(-len(there) // _HANDS)))
        first = 0
        while first < len(there):
            if there[first]:
                self._fetch.tally.kept(min(PIECE, size - first * PIECE))
                first += 1
                continue
            end = first + 1
            while end < min(first + most, len(there)) and not there[end]:
                end += 1
            yield first, end
            first = end

    async def _span(self, first: int, end: int, draft: Draft, meta: "ObjectMeta") -> None:
        """Its pieces come in order: what broke off goes on at the first that is not there."""

        def there() -> int:
            return sum(draft.there[first:end])

        async def rest() -> None:
            start = (first + there()) * PIECE
            async with self._fetch.room.take(2 * _CHUNK):
                await aside(self._get, start, min(end * PIECE, meta["size"]), draft, meta)

        await self._fetch.patience.insist(rest, self._url, there)

    def _get(self, start: int, end: int, draft: Draft, meta: "ObjectMeta") -> None:
        """On a thread of its own: with a turn of the loop for each chunk, this costs half as much again."""
        at = start
        for data in self._fetch.direct.range(self._key, meta["e_tag"], start, end, _CHUNK):
            if not draft.write(at, data, end):
                return
            at += len(data)
        if at == end:
            return
        for data in self._stream(at, end, meta):
            if not draft.write(at, data, end):
                return
            at += len(data)
        if at != end:
            raise Broken(f"{self._url}: {at - start} bytes came instead of {end - start}")

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

    def _finish(self, draft: Draft, meta: "ObjectMeta", mtime: int, wanted: Expected) -> None:
        try:
            if wanted.kind:
                got = draft.digest(wanted.kind, meta["size"])
                self._fetch.compare(self._key, self._url, wanted, got)
        except Broken:
            draft.spoilt()
            raise
        draft.finish(mtime)
        self._fetch.remember(self._parts, meta["e_tag"], meta["size"], mtime)


def nanoseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1) * 1000
