"""What runners fetch and save: the requests by which they reach the objects of their mounts.

A runner has no credentials but its token. For an object of a remote store it gets a signed request to the store itself;
for an embedded bucket, or where the store cannot sign or cannot be reached by nodes, one to the runner gateway.
"""

from collections.abc import AsyncIterable
from typing import Any
from urllib.parse import quote

from turnout.errors import Invalid, NotFound
from turnout.job import Launch, Mount, ReplicaName
from turnout.storage import EmbeddedPath, RemotePath, Storage
from turnout.storage.backend import OpenObject
from turnout.storage.objects import Objects
from turnout.storage.presence import Presence

_PAGE = 1000
_SIGNED_SECONDS = 3600
_LARGEST_PUT = 4 << 30
"""Stores take objects up to 5 GB in one request; larger ones go through the gateway, which uploads them in parts."""

Request = dict[str, Any]


class Transfers:
    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._objects = Objects(storage)

    async def page(self, launch: Launch, replica: ReplicaName, number: int, after: str) -> dict[str, Any]:
        """A page of what the mount holds, or `missing` and why."""
        mount = _mount(launch, number)
        path = self._bucket_path(mount, launch.project)
        found = await self._objects.presence(mount.source, path, launch.project)
        if not found.exists:
            return {"missing": found.missing(mount.source).message}
        if found is Presence.OBJECT:
            info = await self._objects.info(mount.source, launch.project)
            return {"objects": [await self._entry(launch, replica, number, info, "")], "after": ""}
        base = _directory(mount.source)
        prefix = _key(base)
        page = await self._objects.list(base, launch.project, after=after, limit=_PAGE)
        objects = [
            await self._entry(launch, replica, number, info, info.key.removeprefix(prefix))
            for info in page.objects
            if info.key != prefix
        ]
        return {"objects": objects, "after": page.next}

    async def put(
        self, launch: Launch, replica: ReplicaName, number: int, objects: list[tuple[str, int]]
    ) -> dict[str, Any]:
        """The requests that store these objects (key, size)."""
        mount = _mount(launch, number)
        if mount.read_only:
            raise Invalid(f"mount {number} is read-only")
        requests: list[Request] = []
        for key, size in objects:
            _check_key(key)
            direct = None
            if size <= _LARGEST_PUT:
                direct = await self._signed(launch, mount, "PUT", key)
            requests.append(direct or _through_gateway(launch, replica, "PUT", number, key))
        return {"requests": requests}

    async def read(self, launch: Launch, number: int, key: str, range_header: str) -> OpenObject:
        return await self._objects.read(self._url(launch, number, key), launch.project, range_header)

    async def write(self, launch: Launch, number: int, key: str, body: AsyncIterable[bytes]) -> None:
        mount = _mount(launch, number)
        if mount.read_only:
            raise Invalid(f"mount {number} is read-only")
        _check_key(key)
        await self._objects.write(_directory(mount.source) + key, launch.project, body)

    def _url(self, launch: Launch, number: int, key: str) -> str:
        """`key`: relative to the mount; empty if the mount is one object."""
        mount = _mount(launch, number)
        if not key:
            return mount.source
        _check_key(key)
        return _directory(mount.source) + key

    async def _entry(
        self, launch: Launch, replica: ReplicaName, number: int, info: Any, key: str
    ) -> dict[str, Any]:
        mount = launch.spec.mounts[number]
        get = await self._signed(launch, mount, "GET", key)
        return {
            "key": key or mount.source.rstrip("/").rpartition("/")[2],
            "size": info.size,
            "etag": info.etag,
            "crc32c": info.crc32c or "",
            "get": get or _through_gateway(launch, replica, "GET", number, key),
        }

    async def _signed(self, launch: Launch, mount: Mount, method: str, key: str) -> Request | None:
        path = self._bucket_path(mount, launch.project)
        if isinstance(path, EmbeddedPath):
            return None
        source = _directory(mount.source) + key if key else mount.source
        url = await self._objects.sign(method, source, launch.project, _SIGNED_SECONDS)
        return {"method": method, "url": url, "headers": {}} if url else None

    def _bucket_path(self, mount: Mount, project: str) -> EmbeddedPath | RemotePath:
        path = self._storage.locate(mount.source, project)
        if not isinstance(path, EmbeddedPath | RemotePath):
            raise Invalid(f"{mount.source!r} is not in a bucket")
        return path


def _mount(launch: Launch, number: int) -> Mount:
    if not 0 <= number < len(launch.spec.mounts):
        raise NotFound(f"there is no mount {number}")
    return launch.spec.mounts[number]


def _directory(source: str) -> str:
    return source.rstrip("/") + "/"


def _key(url: str) -> str:
    """The key of an object's URL."""
    return url.partition("://")[2].partition("/")[2]


def _check_key(key: str) -> None:
    if not key or key.startswith("/") or any(part in ("", ".", "..") for part in key.split("/")):
        raise Invalid(f"{key!r} cannot be the key of an object in a mount")


def _through_gateway(launch: Launch, replica: ReplicaName, method: str, number: int, key: str) -> Request:
    url = f"/runner/v1/{launch.attempt}/{replica}/objects/{number}/{quote(key)}"
    return {"method": method, "url": url, "headers": {}}
