"""In: what is below a prefix becomes files below a directory."""

import hashlib
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING

from turnout.errors import NotFound
from turnout.runner.stage.again import Broken, Patience
from turnout.runner.stage.crew import Hands, each, on_thread
from turnout.runner.stage.direct import Direct, Whole
from turnout.runner.stage.files import NoSpace, Target, parts_of
from turnout.runner.stage.memory import Memory, Moved
from turnout.runner.stage.orders import Item
from turnout.runner.stage.pieces import Pieces, nanoseconds
from turnout.runner.stage.room import TRANSFERS, Room
from turnout.runner.stage.sums import NOTHING, Expected, bare, digest, expected
from turnout.runner.stage.tally import Tally

if TYPE_CHECKING:
    from obstore import GetResult, ObjectMeta

    from turnout.storage.remote import Store

BIG = 8 << 20
"""From here on an object is fetched in pieces."""
_TINY = 64 << 10
"""Up to here there is little to save: it comes by obstore."""
_HANDS = 6
"""Of our own: more would get into each other's way."""


class Fetch:
    """One item of an order."""

    def __init__(self, item: Item, store: "Store", room: Room, patience: Patience, tally: Tally) -> None:
        self.store = store
        self.room = room
        self.patience = patience
        self.tally = tally
        self._item = item
        self._prefix = item.prefix.strip("/")
        self._url = item.called
        self.direct = Direct(store)
        self._hands = Hands(_HANDS)
        self._etags_are_md5 = True
        self._odd: dict[str, str] = {}
        """Digests of what did not fit its ETag."""

    async def run(self) -> None:
        """Raises TurnoutError."""
        memory = Memory(self._item.state)
        try:
            memory.trust_this_boot_only()
            await self._fill(memory)
        finally:
            self._hands.leave()
            self.direct.close()
            memory.close()

    async def _fill(self, memory: Memory) -> None:
        tag = hashlib.sha1(self._url.encode(), usedforsecurity=False).hexdigest()[:12]
        self.target = Target(self._item.to, tag)
        self.memory = memory
        keep = True
        try:
            self.target.drop_leftovers()
            await each(self._objects(), self._one, TRANSFERS)
            keep = False
        except NoSpace:
            keep = False
            raise
        finally:
            # Not here: a thread may be in the middle of a write, and the disk slow.
            await on_thread(self.target.close, keep)

    async def _objects(self) -> AsyncIterator["ObjectMeta"]:
        if self._prefix and not self._item.prefix.endswith("/"):
            single = await self._single()
            if single:
                yield single
                return
        empty = True
        async for found in self._listed():
            empty = False
            yield found
        if empty and not self._item.optional:
            raise NotFound(f"{self._url}: there is nothing")

    async def _single(self) -> "ObjectMeta | None":
        try:
            return await self.patience.insist(lambda: self.store.head_async(self._prefix), self._url)
        except NotFound:
            return None

    async def _listed(self) -> AsyncIterator["ObjectMeta"]:
        """A listing that broke off goes on where it was."""
        last: str | None = None
        stream = self.store.list(self._prefix or None, chunk_size=1000)

        async def following() -> "list[ObjectMeta] | None":
            nonlocal stream
            try:
                return await anext(stream)  # pyright: ignore[reportReturnType]
            except StopAsyncIteration:
                return None
            except Exception:
                stream = self.store.list(self._prefix or None, offset=last, chunk_size=1000)
                raise

        while chunk := await self.patience.insist(following, self._url):
            for found in chunk:
                yield found
            last = chunk[-1]["path"]

    async def _one(self, found: "ObjectMeta") -> None:
        key = found["path"]
        below = key.removeprefix(self._prefix).removeprefix("/") if key != self._prefix else ""
        if not below:
            if self._item.prefix.endswith("/") or not self._prefix:
                return  # the marker of the directory itself
            below = key.rpartition("/")[2]
        url = self._url.removesuffix(self._item.prefix) + key
        parts = parts_of(below, url)
        self.tally.found(found["size"])
        path = "/".join(parts)
        if self._is_here(path, parts, found):
            self.tally.kept(found["size"])
            return
        if found["size"] > BIG:
            await Pieces(self, key, url, parts).run()
        else:
            await self.patience.insist(lambda: self._small(key, url, parts, found["size"]), url)

    def _is_here(self, path: str, parts: tuple[str, ...], found: "ObjectMeta") -> bool:
        known = self.memory.get(path)
        if (
            known is None
            or not known.etag
            or (known.etag, known.size) != (bare(found["e_tag"]), found["size"])
        ):
            return False
        return self.target.stat(parts) == (known.size, known.mtime)

    async def _small(self, key: str, url: str, parts: tuple[str, ...], size: int) -> None:
        async with self.room.take(size):
            if size > _TINY and await self._hands.run(self._come, key, url, parts):
                return
            try:
                result = await self.store.get_async(key)
            except FileNotFoundError:
                if size:
                    raise
                self.target.make_directory(parts)  # `key/` it was, an empty object that marks a directory
                return
            if not size and self.target.is_directory(parts):
                return
            await on_thread(self._save, key, url, parts, await _whole(result, url))

    def _come(self, key: str, url: str, parts: tuple[str, ...]) -> bool:
        """The direct way, on a thread that may be left behind. False: it has to go by obstore."""
        whole = self.direct.whole(key, BIG)
        if whole is None:
            return False
        with self.target.used() as used:
            if used:
                self._save(key, url, parts, whole)
        return True

    def _save(self, key: str, url: str, parts: tuple[str, ...], whole: Whole) -> None:
        wanted = self.expects(whole.etag, whole.attributes)
        if wanted.kind:
            self.compare(key, url, wanted, digest(wanted.kind, whole.data))
        size, mtime = len(memoryview(whole.data)), nanoseconds(whole.modified)
        self.target.write(parts, whole.data, mtime)
        self.remember(parts, whole.etag, size, mtime)
        self.tally.moved(size)

    def expects(self, etag: str | None, attributes: Mapping[str, str]) -> Expected:
        wanted = expected(etag, attributes)
        return NOTHING if wanted.kind == "md5" and not self._etags_are_md5 else wanted

    def compare(self, key: str, url: str, wanted: Expected, got: str) -> None:
        """Raises Broken. Twice the same bytes that do not fit an ETag mean that the ETags here are no MD5."""
        if got == wanted.value:
            return
        if wanted.kind == "md5" and self._odd.get(key) == got:
            self._etags_are_md5 = False
            return
        self._odd[key] = got
        raise Broken(f"{url}: what came does not fit its checksum ({wanted.kind} {wanted.value}, came {got})")

    def remember(self, parts: tuple[str, ...], etag: str | None, size: int, mtime: int) -> None:
        self.tally.finished()
        self.memory.add(Moved("/".join(parts), size, mtime, bare(etag)))


async def _whole(result: "GetResult", url: str) -> Whole:
    meta, data = result.meta, await result.bytes_async()
    if len(data) != meta["size"]:
        raise Broken(f"{url}: {len(data)} bytes came instead of {meta['size']}")
    return Whole(data, meta["e_tag"] or "", meta["last_modified"], result.attributes)  # pyright: ignore[reportArgumentType]
