"""Objects by their url, wherever their bucket lies: `cos:// obs:// gs:// s3://`."""

import asyncio
from collections.abc import AsyncIterable
from typing import Any

import msgspec

from turnout.errors import Invalid, WrongState
from turnout.storage.anywhere_shelf import Opened, Shelf
from turnout.storage.objects import Embedded, Info, Page
from turnout.storage.source import BUCKET_SCHEMES
from turnout.storage.storage import Storage
from turnout.storage.streams import Reading, byte_range, pour

_PATIENCE = 20.0
"""Seconds that an ailing store is given while somebody waits for the answer."""


class Objects:
    """Everywhere: Invalid for a url that is none, NotFound, and Denied for another project's bucket."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._remote: dict[str, Shelf] = {}

    async def buckets(self, project: str) -> list[tuple[str, int]]:
        """Those that lie here: name, and when it was made (ns)."""
        return await asyncio.to_thread(self._storage.embedded.buckets, project)

    async def info(self, url: str, project: str) -> Info:
        shelf, key = await self._object(url, project)
        return await shelf.info(key)

    async def read(self, url: str, project: str, asked: str = "", etag: str = "") -> Opened:
        """`etag`: raises WrongState if the object is another one by now."""
        shelf, key = await self._object(url, project)
        opened = await shelf.read(key, asked)
        if etag not in ("", opened.info.etag):
            raise WrongState(f"{url} was changed meanwhile")
        return opened

    async def write(
        self,
        url: str,
        project: str,
        body: AsyncIterable[bytes],
        content_type: str = "",
        absent: bool = False,
        crc32c: str = "",
    ) -> Info:
        shelf, key = await self._object(url, project)
        return await shelf.write(key, body, content_type, absent, crc32c)

    async def copy(self, source: str, target: str, project: str, absent: bool = False) -> Info:
        """Without the bytes passing through here where both lie in the same place."""
        shelf, key = await self._object(source, project)
        to, to_key = await self._object(target, project)
        if isinstance(shelf, _Here) and isinstance(to, _Here):
            return await shelf.copy(key, to, to_key, absent)
        opened = await shelf.read(key, "")
        crc32c = opened.info.crc32c or ""
        return await to.write(to_key, opened.body, opened.info.content_type, absent, crc32c)

    async def delete(self, url: str, project: str) -> None:
        shelf, key = await self._object(url, project)
        await shelf.delete(key)

    async def list(
        self, url: str, project: str, delimiter: str = "", after: str = "", limit: int = 1000
    ) -> Page:
        """What begins with `url`, in the order of the keys' bytes."""
        shelf, prefix = await self._find(url, project)
        return await shelf.list(prefix, delimiter, after, limit)

    async def _object(self, url: str, project: str) -> tuple[Shelf, str]:
        shelf, key = await self._find(url, project)
        if not key:
            raise Invalid(f"{url!r} names a bucket, not an object in it")
        return shelf, key

    async def _find(self, url: str, project: str) -> tuple[Shelf, str]:
        scheme, separator, rest = url.partition("://")
        bucket, _, key = rest.partition("/")
        if scheme not in BUCKET_SCHEMES or not separator or not bucket:
            known = ", ".join(f"{name}://" for name in BUCKET_SCHEMES)
            raise Invalid(
                f"{url!r} is not in a bucket: it must begin with one of {known} and a bucket's name"
            )
        real = self._storage.transfer(f"{scheme}://{bucket}", project)
        if real is None:
            return _Here(self._storage.embedded, bucket, project), key
        name = f"{scheme}://{bucket}"
        if name not in self._remote:
            self._remote[name] = await asyncio.to_thread(_open, real, name)
        return self._remote[name], key


def _open(real: dict[str, Any], name: str) -> Shelf:
    # Only those who have such a bucket pay for what it takes to reach one.
    from turnout.storage.anywhere_remote import Remote
    from turnout.storage.remote import Backing, open_store

    backing = msgspec.convert(real["backing"], Backing)
    return Remote(open_store(backing, _PATIENCE), name)


class _Here:
    def __init__(self, embedded: Embedded, bucket: str, project: str) -> None:
        self._embedded = embedded
        self._place = bucket, project

    async def info(self, key: str) -> Info:
        bucket, project = self._place
        return await asyncio.to_thread(self._embedded.info, bucket, key, project)

    async def read(self, key: str, asked: str) -> Opened:
        bucket, project = self._place
        descriptor, info = await asyncio.to_thread(self._embedded.open, bucket, key, project)
        reading = Reading(descriptor)
        reading.use(await asyncio.to_thread(self._embedded.pread, descriptor, info))
        start, end = byte_range(asked, info.size) or (0, info.size)
        return Opened(info, start, end, reading.part(start, end), reading.close)

    async def write(
        self, key: str, body: AsyncIterable[bytes], content_type: str, absent: bool, crc32c: str
    ) -> Info:
        bucket, project = self._place
        expect = "absent" if absent else None
        writer = await asyncio.to_thread(
            self._embedded.writer, bucket, key, project, content_type, None, expect
        )
        try:
            await pour(body, writer.write)
            if crc32c not in ("", writer.crc32c):
                raise Invalid(
                    f"{key!r}: the crc32c of what arrived is {writer.crc32c}, not {crc32c}: nothing was kept"
                )
            return await asyncio.to_thread(writer.commit)
        finally:
            await asyncio.to_thread(writer.abort)

    async def copy(self, key: str, to: "_Here", to_key: str, absent: bool) -> Info:
        (bucket, project), (to_bucket, _) = self._place, to._place
        expect = "absent" if absent else None
        return await asyncio.to_thread(
            self._embedded.copy, bucket, key, to_bucket, to_key, project, None, None, expect
        )

    async def delete(self, key: str) -> None:
        bucket, project = self._place
        await asyncio.to_thread(self._embedded.delete, bucket, key, project)

    async def list(self, prefix: str, delimiter: str, after: str, limit: int) -> Page:
        bucket, project = self._place
        return await asyncio.to_thread(self._embedded.list, bucket, project, prefix, delimiter, after, limit)
