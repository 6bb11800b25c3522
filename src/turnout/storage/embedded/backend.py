"""An embedded bucket behind the protocol of `storage/backend.py`. Disk access runs in threads."""

from collections.abc import AsyncIterable

from turnout import pools
from turnout.errors import Invalid
from turnout.storage.backend import OpenObject
from turnout.storage.embedded.objects import EmbeddedStore, Info, ObjectPage
from turnout.storage.streams import FileStream, byte_range, write_all


class EmbeddedBackend:
    def __init__(self, store: EmbeddedStore, bucket: str, project: str) -> None:
        self._store = store
        self._bucket = bucket
        self._project = project

    async def info(self, key: str) -> Info:
        return await pools.disk.run(self._project, self._store.info, self._bucket, key, self._project)

    async def read(self, key: str, range_header: str) -> OpenObject:
        project = self._project
        descriptor, info = await pools.disk.run(project, self._store.open, self._bucket, key, project)
        stream = FileStream(descriptor, project)
        if info.sealed:
            stream.use(await pools.disk.run(project, self._store.pread, descriptor, info))
        start, end = byte_range(range_header, info.size) or (0, info.size)
        return OpenObject(info, start, end, stream.part(start, end), stream.close)

    async def write(
        self, key: str, body: AsyncIterable[bytes], content_type: str, absent: bool, crc32c: str
    ) -> Info:
        project = self._project
        expect = "absent" if absent else None
        writer = await pools.disk.run(
            project, self._store.writer, self._bucket, key, project, content_type, None, expect
        )
        try:
            await write_all(body, writer.write, project)
            if crc32c not in ("", writer.crc32c):
                raise Invalid(
                    f"{key!r}: the crc32c of what arrived is {writer.crc32c}, not {crc32c}: nothing was stored"
                )
            return await pools.disk.run(project, writer.commit)
        finally:
            await pools.disk.run(project, writer.abort)

    async def copy(self, key: str, target: "EmbeddedBackend", target_key: str, absent: bool) -> Info:
        """The bytes do not pass through this process."""
        expect = "absent" if absent else None
        return await pools.copies.run(
            self._project,
            self._store.copy,
            self._bucket,
            key,
            target._bucket,
            target_key,
            self._project,
            None,
            None,
            expect,
        )

    async def delete(self, key: str) -> None:
        await pools.disk.run(self._project, self._store.delete, self._bucket, key, self._project)

    async def list(self, prefix: str, delimiter: str, after: str, limit: int) -> ObjectPage:
        return await pools.disk.run(
            self._project, self._store.list, self._bucket, self._project, prefix, delimiter, after, limit
        )
