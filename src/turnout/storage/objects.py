"""Objects by their URL, in embedded and in remote buckets: `cos:// obs:// gs:// s3://`."""

from collections.abc import AsyncIterable
from typing import TYPE_CHECKING, NamedTuple

from turnout import pools
from turnout.errors import Invalid, WrongState
from turnout.storage.backend import OpenObject
from turnout.storage.embedded.backend import EmbeddedBackend
from turnout.storage.embedded.objects import Info, ObjectPage
from turnout.storage.embedded.path import EmbeddedPath
from turnout.storage.presence import Presence
from turnout.storage.remote.settings import RemotePath, RemoteSettings
from turnout.storage.source import parse_object
from turnout.storage.storage import Storage

if TYPE_CHECKING:
    from turnout.storage.remote.backend import RemoteBackend

_EMBEDDED_SCHEMES = ("gs", "s3", "obs", "cos")
"""Any of them leads to an embedded bucket, unless the settings say that the scheme is remote."""
_PATIENCE = 20.0
"""Seconds for which a failing store is retried while a caller waits."""


class Bucket(NamedTuple):
    name: str
    url: str
    """With a scheme that leads to it."""
    created: int | None
    """None for a remote one."""
    store: str = ""
    """The URL that the settings give a remote bucket; empty for an embedded one."""
    shared: bool = False
    """Whether other projects may use it too."""


class Objects:
    """All calls raise Invalid for a malformed URL, NotFound, and Denied for another project's bucket."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._remote: dict[str, RemoteBackend] = {}

    async def buckets(self, project: str) -> list[Bucket]:
        """The buckets that this project may use: the embedded ones, and the remote ones that the settings name."""
        return await pools.disk.run(project, _buckets, self._storage, project)

    async def make_bucket(self, name: str, project: str) -> None:
        """Makes an embedded bucket. Raises AlreadyExists, Denied for a name of another project, or Invalid."""
        self._check_embedded(name)
        await pools.disk.run(project, self._storage.embedded.make_bucket, name, project)

    async def remove_bucket(self, name: str, project: str) -> None:
        """Raises WrongState if it has objects or a job mounts it; NotFound; Invalid for a remote bucket."""
        self._check_embedded(name)
        await pools.disk.run(project, self._storage.embedded.remove_bucket, name, project)

    async def is_shared(self, url: str, project: str) -> bool:
        """Whether the URL is in an embedded bucket that other projects can change."""
        _, bucket, _ = parse_object(url)
        if isinstance(self._storage.locate(url, project), RemotePath):
            return False
        return await pools.disk.run(project, self._storage.embedded.is_shared, bucket, project)

    async def info(self, url: str, project: str) -> Info:
        backend, key = await self._object(url, project)
        return await backend.info(key)

    async def read(self, url: str, project: str, range_header: str = "", etag: str = "") -> OpenObject:
        """`etag`: raises WrongState if the object has another one."""
        backend, key = await self._object(url, project)
        found = await backend.read(key, range_header)
        if etag not in ("", found.info.etag):
            raise WrongState(f"{url} was changed meanwhile")
        return found

    async def write(
        self,
        url: str,
        project: str,
        body: AsyncIterable[bytes],
        content_type: str = "",
        absent: bool = False,
        crc32c: str = "",
    ) -> Info:
        """As `BucketBackend.write`."""
        backend, key = await self._object(url, project)
        return await backend.write(key, body, content_type, absent, crc32c)

    async def copy(self, source: str, target: str, project: str, absent: bool = False) -> Info:
        backend, key = await self._object(source, project)
        to, to_key = await self._object(target, project)
        if isinstance(backend, EmbeddedBackend) and isinstance(to, EmbeddedBackend):
            return await backend.copy(key, to, to_key, absent)
        found = await backend.read(key, "")
        crc32c = found.info.crc32c or ""
        return await to.write(to_key, found.body, found.info.content_type, absent, crc32c)

    async def delete(self, url: str, project: str) -> None:
        backend, key = await self._object(url, project)
        await backend.delete(key)

    async def list(
        self, url: str, project: str, delimiter: str = "", after: str = "", limit: int = 1000
    ) -> ObjectPage:
        """Objects whose URL begins with `url`, in the order of the keys' bytes."""
        backend, prefix = await self._backend(url, project)
        return await backend.list(prefix, delimiter, after, limit)

    async def sign(self, method: str, url: str, project: str, seconds: int) -> str:
        """A URL that needs no credentials, for other machines. Empty: only this service can reach the object."""
        backend, key = await self._object(url, project)
        if isinstance(backend, EmbeddedBackend):
            return ""
        return await pools.network.run(project, backend.sign, method, key, seconds)

    async def presence(self, source: str, path: EmbeddedPath | RemotePath, project: str) -> Presence:
        """What is at the source of a mount, and at this path. Also raises what a remote store answers."""
        if isinstance(path, EmbeddedPath):
            return await pools.disk.run(project, path.presence)
        scheme, bucket, _ = parse_object(source)
        backend = await self._remote_backend(path.settings, f"{scheme}://{bucket}", project)
        return await backend.presence(path.prefix)

    def _check_embedded(self, name: str) -> None:
        if all(self._storage.remote.settings(scheme, name) for scheme in _EMBEDDED_SCHEMES):
            raise Invalid(
                f"{name!r} is in a remote object store: make and remove buckets there", field="name"
            )

    async def _object(self, url: str, project: str) -> "tuple[EmbeddedBackend | RemoteBackend, str]":
        backend, key = await self._backend(url, project)
        if not key:
            raise Invalid(f"{url!r} is a bucket; name an object in it")
        return backend, key

    async def _backend(self, url: str, project: str) -> "tuple[EmbeddedBackend | RemoteBackend, str]":
        scheme, bucket, key = parse_object(url)
        name = f"{scheme}://{bucket}"
        location = self._storage.locate(name, project)
        if not isinstance(location, RemotePath):
            return EmbeddedBackend(self._storage.embedded, bucket, project), key
        return await self._remote_backend(location.settings, name, project), key

    async def _remote_backend(self, settings: RemoteSettings, name: str, project: str) -> "RemoteBackend":
        if name not in self._remote:
            self._remote[name] = await pools.network.run(project, _open, settings, name)
        return self._remote[name]


def _buckets(storage: Storage, project: str) -> list[Bucket]:
    remote, embedded = storage.remote, storage.embedded
    scheme = next((one for one in _EMBEDDED_SCHEMES if one not in remote.schemes), "")
    found = [
        Bucket(name, f"{scheme}://{name}", created, shared=embedded.is_shared(name, project))
        for name, created in embedded.buckets(project)
        if scheme and remote.settings(scheme, name) is None
    ]
    found += [
        Bucket(name, f"{settings.scheme}://{name}", None, store=settings.url)
        for name, settings in remote.buckets.items()
        if remote.is_open_to(project, settings.scheme, name)
    ]
    return sorted(found, key=lambda bucket: bucket.name)


def _open(settings: RemoteSettings, name: str) -> "RemoteBackend":
    # Only services with a remote bucket need the memory that these take.
    from turnout.storage.remote.backend import RemoteBackend
    from turnout.storage.remote.store import open_store

    return RemoteBackend(open_store(settings, _PATIENCE), name, settings)
