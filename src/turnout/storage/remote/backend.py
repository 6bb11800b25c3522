"""A bucket in a remote store behind the protocol of `storage/backend.py`."""

import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from turnout.errors import AlreadyExists, Invalid, NotFound, TurnoutError, Unsupported
from turnout.storage.backend import OpenObject
from turnout.storage.embedded import checksums
from turnout.storage.embedded.objects import Info, ObjectPage
from turnout.storage.presence import Presence
from turnout.storage.remote.errors import explain
from turnout.storage.remote.settings import RemoteSettings
from turnout.storage.streams import PIECE, byte_range, coalesced

if TYPE_CHECKING:
    from turnout.storage.remote.store import ObjectStore

_PART_BYTES = 8 << 20
"""Larger objects are uploaded in parts."""
_UNKNOWN_TYPE = "application/octet-stream"


class RemoteBackend:
    def __init__(self, store: "ObjectStore", name: str, settings: RemoteSettings) -> None:
        """`name`: the bucket's URL as the user knows it, for messages."""
        self._store = store
        self._name = name
        self._settings = settings

    async def info(self, key: str) -> Info:
        with self._explained(key):
            return _info(await self._store.head_async(key), _UNKNOWN_TYPE)

    async def read(self, key: str, range_header: str) -> OpenObject:
        part = byte_range(range_header, (await self.info(key)).size) if range_header else None
        with self._explained(key):
            result = await self._store.get_async(key, options={"range": part} if part else None)
        info = _info(result.meta, str(result.attributes.get("Content-Type") or _UNKNOWN_TYPE))
        start, end = part or (0, info.size)
        return OpenObject(info, start, end, self._body(key, result))

    async def presence(self, path: str) -> Presence:
        """What is at this path. Raises Denied, TimedOut and others."""
        with self._explained(path):
            if path and await self._exists(path):
                return Presence.OBJECT
        try:
            with self._explained(path):
                async for metas in self._store.list(path or None, chunk_size=1):
                    if metas:
                        return Presence.DIRECTORY
        except NotFound:
            return Presence.NO_BUCKET
        return Presence.EMPTY

    async def write(
        self, key: str, body: AsyncIterable[bytes], content_type: str, absent: bool, crc32c: str
    ) -> Info:
        if absent and await self._exists(key):
            raise AlreadyExists(f"{self._name}/{key} exists")
        upload = _UploadBody(body, key, crc32c)
        begin = await upload.begin()
        content: Any = begin if upload.over else upload.all(begin)
        with self._explained(key, upload):
            await self._store.put_async(
                key,
                content,
                attributes={"Content-Type": content_type or _UNKNOWN_TYPE},
                mode="create" if absent and upload.over else "overwrite",
                max_concurrency=2,
            )
        found = await self.info(key)
        return found._replace(crc32c=upload.crc32c, content_type=content_type or _UNKNOWN_TYPE)

    def sign(self, method: str, key: str, seconds: int) -> str:
        """A signed URL; empty if the store has no key to sign with, or no other machine can reach it. Blocks."""
        settings = self._settings
        if settings.loopback or settings.anonymous or (settings.scheme == "gs" and not settings.secret):
            return ""
        import obstore

        try:
            return obstore.sign(self._store, method, key, timedelta(seconds=seconds))  # pyright: ignore[reportArgumentType, reportCallIssue]
        except Exception as error:  # noqa: BLE001 (as in `_explained`)
            raise explain(error, f"{self._name}/{key}").error from None

    async def delete(self, key: str) -> None:
        await self.info(key)  # raises NotFound: stores do not, when they delete a missing object
        with self._explained(key):
            await self._store.delete_async(key)

    async def list(self, prefix: str, delimiter: str, after: str, limit: int) -> ObjectPage:
        if delimiter not in ("", "/"):
            raise Unsupported(f"{self._name}: only / is supported as a delimiter")
        folder = prefix.rpartition("/")[0] or None
        with self._explained(prefix):
            if delimiter:
                return await self._list_level(folder, prefix, after, limit)
            return await self._list_all(folder, prefix, after, limit)

    async def _list_all(self, folder: str | None, prefix: str, after: str, limit: int) -> ObjectPage:
        objects: list[Info] = []
        async for metas in self._store.list(folder, offset=after or None, chunk_size=min(limit + 1, 1000)):
            objects += (_info(meta, _UNKNOWN_TYPE) for meta in metas if meta["path"].startswith(prefix))
            if len(objects) > limit:
                return ObjectPage(objects[:limit], [], objects[limit - 1].key)
        return ObjectPage(objects, [], "")

    async def _list_level(self, folder: str | None, prefix: str, after: str, limit: int) -> ObjectPage:
        found = await self._store.list_with_delimiter_async(folder)
        entries: list[tuple[str, Info | None]] = [(f"{common}/", None) for common in found["common_prefixes"]]
        entries += ((meta["path"], _info(meta, _UNKNOWN_TYPE)) for meta in found["objects"])
        entries = sorted(entry for entry in entries if entry[0].startswith(prefix) and entry[0] > after)
        page = entries[:limit]
        return ObjectPage(
            [info for _, info in page if info],
            [key for key, info in page if not info],
            page[-1][0] if len(entries) > limit else "",
        )

    async def _body(self, key: str, result: Any) -> AsyncIterator[bytes]:
        with self._explained(key):
            async for piece in result.stream(min_chunk_size=PIECE):
                yield bytes(piece)

    async def _exists(self, key: str) -> bool:
        try:
            await self._store.head_async(key)
        except FileNotFoundError:
            return False
        return True

    @contextlib.contextmanager
    def _explained(self, key: str, upload: "_UploadBody | None" = None) -> Iterator[None]:
        try:
            yield
        except (TurnoutError, GeneratorExit):
            raise
        except Exception as error:  # noqa: BLE001 (obstore's errors have no common class; `explain` knows them)
            if upload and upload.failure:
                raise upload.failure from None
            if type(error).__name__ == "AlreadyExistsError":
                raise AlreadyExists(f"{self._name}/{key} exists") from None
            raise explain(error, f"{self._name}/{key}").error from None


class _UploadBody:
    """The body of an upload, with its checksum. If it raises, the upload must fail, or half an object is stored."""

    def __init__(self, body: AsyncIterable[bytes], key: str, expected: str) -> None:
        self._pieces = coalesced(body)
        self._key = key
        self._expected = expected
        self._crc32c = 0
        self.over = False
        self.failure: Exception | None = None

    @property
    def crc32c(self) -> str:
        return checksums.encode(self._crc32c)

    async def begin(self) -> bytes:
        """The whole body if it fits into one request, or its first part."""
        pieces: list[bytes] = []
        size = 0
        async for piece in self._pieces:
            pieces.append(piece)
            size += len(piece)
            self._crc32c = checksums.extend(self._crc32c, piece)
            if size > _PART_BYTES:
                return b"".join(pieces)
        self.over = True
        self._check()
        return b"".join(pieces)

    async def all(self, begin: bytes) -> AsyncIterator[bytes]:
        yield begin
        try:
            async for piece in self._pieces:
                self._crc32c = checksums.extend(self._crc32c, piece)
                yield piece
            self._check()
        except Exception as error:
            self.failure = error
            raise

    def _check(self) -> None:
        if self._expected not in ("", self.crc32c):
            raise Invalid(
                f"{self._key!r}: the crc32c of what arrived is {self.crc32c}, not {self._expected}: nothing was stored"
            )


def _info(meta: Any, content_type: str) -> Info:
    modified: datetime = meta["last_modified"]
    at = int(modified.timestamp()) * 1_000_000_000 + modified.microsecond * 1000
    etag = (meta["e_tag"] or f"{at}-{meta['size']}").strip('"')
    return Info(meta["path"], meta["size"], at, etag, None, None, content_type, {}, at)
