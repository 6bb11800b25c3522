"""Downloads the objects below a prefix into a directory."""

import hashlib
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING

from turnout.errors import NotFound
from turnout.runner.stager.budget import TRANSFERS
from turnout.runner.stager.checksums import NOTHING, Expected, bare, digest, expected
from turnout.runner.stager.context import TransferContext
from turnout.runner.stager.direct_download import DirectDownload, WholeObject
from turnout.runner.stager.files import NoSpace, TargetDirectory, parts_of
from turnout.runner.stager.messages import TransferItem
from turnout.runner.stager.ranged_fetch import RangedFetch, nanoseconds
from turnout.runner.stager.retry import Corrupt
from turnout.runner.stager.transfer_log import TransferLog, TransferredFile
from turnout.runner.stager.workers import WorkerThreads, for_each, on_thread

if TYPE_CHECKING:
    from obstore import GetResult, ObjectMeta


BIG = 8 << 20
"""Objects larger than this are fetched in pieces."""
_TINY = 64 << 10
"""Objects up to this size are fetched through obstore, because a direct download would save little."""
_WORKERS = 6
"""Threads for direct downloads; more would slow each other down."""


class Fetch:
    """One inbound transfer of an order."""

    def __init__(self, item: TransferItem, context: TransferContext) -> None:
        self.store, self.budget, self.retries, self.progress = context
        self._item = item
        self._prefix = item.prefix.strip("/")
        self._url = item.display_url
        self.direct = DirectDownload(self.store)
        self._threads = WorkerThreads(_WORKERS)
        self._etags_are_md5 = True
        self._mismatches: dict[str, str] = {}
        """Digests of objects that did not match their ETag, by key."""

    async def run(self) -> None:
        """Raises TurnoutError."""
        transfer_log = TransferLog(self._item.state)
        try:
            transfer_log.trust_this_boot_only()
            await self._fill(transfer_log)
        finally:
            self._threads.abandon()
            self.direct.close()
            transfer_log.close()

    async def _fill(self, transfer_log: TransferLog) -> None:
        tag = hashlib.sha1(self._url.encode(), usedforsecurity=False).hexdigest()[:12]
        self.target = TargetDirectory(self._item.to, tag)
        self.transfer_log = transfer_log
        keep = True
        try:
            self.target.drop_leftovers()
            await for_each(self._objects(), self._fetch_object, TRANSFERS)
            keep = False
        except NoSpace:
            keep = False
            raise
        finally:
            # On a thread: it waits for abandoned threads that are still writing to a slow disk.
            await on_thread(self.target.close, keep)

    async def _objects(self) -> AsyncIterator["ObjectMeta"]:
        if self._prefix and not self._item.prefix.endswith("/"):
            single = await self._single()
            if single:
                yield single
                return
        empty = True
        try:
            async for found in self._listed():
                empty = False
                yield found
        except NotFound:  # there is no such bucket
            if not self._item.optional:
                raise
        if empty and not self._item.optional:
            raise NotFound(f"{self._url}: there is no object")

    async def _single(self) -> "ObjectMeta | None":
        try:
            return await self.retries.run(lambda: self.store.head_async(self._prefix), self._url)
        except NotFound:
            return None

    async def _listed(self) -> AsyncIterator["ObjectMeta"]:
        """Resumes an interrupted listing after the last key."""
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

        while chunk := await self.retries.run(following, self._url):
            for found in chunk:
                yield found
            last = chunk[-1]["path"]

    async def _fetch_object(self, found: "ObjectMeta") -> None:
        key = found["path"]
        below = key.removeprefix(self._prefix).removeprefix("/") if key != self._prefix else ""
        if not below:
            if self._item.prefix.endswith("/") or not self._prefix:
                return  # the directory marker itself
            below = key.rpartition("/")[2]
        url = self._url.removesuffix(self._item.prefix) + key
        parts = parts_of(below, url)
        self.progress.found(found["size"])
        path = "/".join(parts)
        if self._is_up_to_date(path, parts, found):
            self.progress.kept(found["size"])
            return
        if found["size"] > BIG:
            await RangedFetch(self, key, url, parts).run()
        else:
            await self.retries.run(lambda: self._small(key, url, parts, found["size"]), url)

    def _is_up_to_date(self, path: str, parts: tuple[str, ...], found: "ObjectMeta") -> bool:
        known = self.transfer_log.get(path)
        if (
            known is None
            or not known.etag
            or (known.etag, known.size) != (bare(found["e_tag"]), found["size"])
        ):
            return False
        return self.target.stat(parts) == (known.size, known.mtime)

    async def _small(self, key: str, url: str, parts: tuple[str, ...], size: int) -> None:
        async with self.budget.reserve(size):
            if size > _TINY and await self._threads.run(self._fetch_directly, key, url, parts):
                return
            try:
                result = await self.store.get_async(key)
            except FileNotFoundError:
                if size:
                    raise
                self.target.make_directory(parts)  # the object is `key/`, an empty directory marker
                return
            if not size and self.target.is_directory(parts):
                return
            await on_thread(self._save, key, url, parts, await _whole_object(result, url))

    def _fetch_directly(self, key: str, url: str, parts: tuple[str, ...]) -> bool:
        """Runs on a thread that may be abandoned. False if obstore has to fetch the object."""
        whole = self.direct.whole(key, BIG)
        if whole is None:
            return False
        with self.target.used() as used:
            if used:
                self._save(key, url, parts, whole)
        return True

    def _save(self, key: str, url: str, parts: tuple[str, ...], whole: WholeObject) -> None:
        wanted = self.expects(whole.etag, whole.attributes)
        if wanted.kind:
            self.compare(key, url, wanted, digest(wanted.kind, whole.data))
        size, mtime = len(memoryview(whole.data)), nanoseconds(whole.modified)
        self.target.write(parts, whole.data, mtime)
        self.remember(parts, whole.etag, size, mtime)
        self.progress.moved(size)

    def expects(self, etag: str | None, attributes: Mapping[str, str]) -> Expected:
        wanted = expected(etag, attributes)
        return NOTHING if wanted.kind == "md5" and not self._etags_are_md5 else wanted

    def compare(self, key: str, url: str, wanted: Expected, got: str) -> None:
        """Raises Corrupt. If the same bytes fail twice, the ETags of this store are not MD5 sums."""
        if got == wanted.value:
            return
        if wanted.kind == "md5" and self._mismatches.get(key) == got:
            self._etags_are_md5 = False
            return
        self._mismatches[key] = got
        raise Corrupt(
            f"{url}: the data does not match its checksum ({wanted.kind} {wanted.value}, received {got})"
        )

    def remember(self, parts: tuple[str, ...], etag: str | None, size: int, mtime: int) -> None:
        self.progress.finished()
        self.transfer_log.add(TransferredFile("/".join(parts), size, mtime, bare(etag)))


async def _whole_object(result: "GetResult", url: str) -> WholeObject:
    meta, data = result.meta, await result.bytes_async()
    if len(data) != meta["size"]:
        raise Corrupt(f"{url}: received {len(data)} bytes instead of {meta['size']}")
    return WholeObject(data, meta["e_tag"] or "", meta["last_modified"], result.attributes)  # pyright: ignore[reportArgumentType]
