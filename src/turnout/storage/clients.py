"""Buckets as storage clients see them through the gateways: embedded ones and those in remote stores, in one way.

A client does not say which kind a bucket is; the settings do, as for a mount of the client's scheme.
"""

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from turnout import pools
from turnout.errors import AlreadyExists, Denied, Misconfigured, TimedOut, TurnoutError, WrongState
from turnout.storage.embedded.attributes import Info
from turnout.storage.embedded.listing import ObjectPage
from turnout.storage.embedded.objects import Opened
from turnout.storage.embedded.writer import Expect
from turnout.storage.remote.settings import RemotePath, RemoteSettings
from turnout.storage.source import check_bucket
from turnout.storage.storage import Storage

if TYPE_CHECKING:
    from turnout.storage.remote.objects import RemoteObjects

_PIECE = 1 << 20
_MOST_OPEN = 100
"""Remote buckets that are kept open: each takes 100 KB, and clients may name any bucket of a scheme."""


class ObjectWriter(Protocol):
    """Call commit() or abort() at the end. Before commit() nothing of the object is visible."""

    size: int

    @property
    def md5(self) -> str | None: ...
    @property
    def crc32c(self) -> str: ...
    def write(self, data: bytes, /) -> None: ...
    def take(self, file: int, size: int, crc32c: str) -> None: ...
    def commit(self, etag: str = "", md5: str = "") -> Info: ...
    def abort(self) -> None: ...


class OpenBuckets:
    """The remote buckets that are in use, of all schemes: the last ones."""

    def __init__(self, storage: Storage) -> None:
        self._uploads = storage.embedded.uploads
        self._lock = threading.Lock()
        self._buckets: dict[str, tuple[RemoteSettings, RemoteObjects]] = {}

    def get(self, name: str, settings: RemoteSettings) -> "RemoteObjects":
        """`settings`: as they are now. Their credentials may have changed since the bucket was opened."""
        # Only services with a remote bucket need the memory that this takes.
        from turnout.storage.remote.objects import RemoteObjects

        with self._lock:
            known, found = self._buckets.pop(name, (None, None))
            if found is None or known != settings:
                found = RemoteObjects(settings, name, self._uploads)
            self._buckets[name] = settings, found
            while len(self._buckets) > _MOST_OPEN:
                del self._buckets[next(iter(self._buckets))]
            return found


class ClientBuckets:
    """For the clients of one scheme. Its calls block: run them in threads of `pool`.

    They raise NotFound for a missing bucket or key, Denied for another project's bucket, Invalid for a malformed name,
    and TimedOut if a store is away.
    """

    def __init__(self, storage: Storage, scheme: str, opened: OpenBuckets) -> None:
        self._storage = storage
        self._embedded = storage.embedded
        self._scheme = scheme
        self._opened = opened

    def pool(self, *buckets: str, long: bool = False) -> pools.ThreadPool:
        """The threads for a call on these buckets. `long`: it copies objects."""
        if any(bucket and self._settings(bucket) for bucket in buckets):
            return pools.stores
        return pools.copies if long else pools.disk

    def buckets(self, project: str) -> list[tuple[str, int]]:
        """Names with creation times (ns; 0 for a remote one), sorted by name."""
        remote = self._storage.remote
        found = [(name, at) for name, at in self._embedded.buckets(project) if not self._settings(name)]
        found += [(name, 0) for name in remote.buckets if remote.is_open_to(project, self._scheme, name)]
        return sorted(found)

    def created(self, bucket: str, project: str) -> int | None:
        """When the bucket was made (ns; 0 for a remote one); None if it does not exist."""
        if remote := self._remote(bucket, project):
            return 0 if remote.exists() else None
        if not self._embedded.has_bucket(bucket, project):
            return None
        return dict(self._embedded.buckets(project)).get(self._embedded.real_name(bucket))

    def has_bucket(self, name: str, project: str) -> bool:
        remote = self._remote(name, project)
        return remote.exists() if remote else self._embedded.has_bucket(name, project)

    def make_bucket(self, name: str, project: str) -> None:
        """Raises AlreadyExists if the project can use it already, Denied if it must be made in a remote store."""
        remote = self._remote(name, project)
        if remote is None:
            self._embedded.make_bucket(name, project)
        elif remote.exists():
            raise AlreadyExists(f"the bucket {name!r} exists", field="bucket")
        else:
            raise _made_there(name)

    def remove_bucket(self, name: str, project: str) -> None:
        """Raises WrongState if it is not empty or a job mounts it; Denied if it is in a remote store."""
        if self._remote(name, project):
            raise _made_there(name)
        self._embedded.remove_bucket(name, project)

    def info(self, bucket: str, key: str, project: str) -> Info:
        remote = self._remote(bucket, project)
        return remote.info(key) if remote else self._embedded.info(bucket, key, project)

    def read(self, bucket: str, key: str, project: str, most: int = -1, part: str = "") -> Opened:
        """Opens the object. Close it at the end.

        One of at most `most` bytes is read at once. `part`: the Range header, if only that part will be read.
        """
        remote = self._remote(bucket, project)
        return remote.read(key, most, part) if remote else self._embedded.read(bucket, key, project, most)

    def list(
        self,
        bucket: str,
        project: str,
        prefix: str = "",
        delimiter: str = "",
        after: str = "",
        limit: int = 1000,
    ) -> ObjectPage:
        """In the order of the keys' bytes. If `after` is a common prefix, all keys with that prefix are skipped."""
        if remote := self._remote(bucket, project):
            return remote.list(prefix, delimiter, after, limit)
        return self._embedded.list(bucket, project, prefix, delimiter, after, limit)

    def writer(
        self,
        bucket: str,
        key: str,
        project: str,
        content_type: str = "",
        metadata: dict[str, str] | None = None,
        expect: Expect = None,
    ) -> ObjectWriter:
        """commit() makes an embedded bucket that is missing. `expect`: "absent", or the generation to replace."""
        if remote := self._remote(bucket, project):
            return remote.writer(key, content_type, metadata or {}, expect)
        return self._embedded.writer(bucket, key, project, content_type, metadata, expect)

    def delete(self, bucket: str, key: str, project: str, expect: int | None = None) -> None:
        if remote := self._remote(bucket, project):
            remote.delete(key, expect)
        else:
            self._embedded.delete(bucket, key, project, expect)

    def delete_many(self, bucket: str, keys: Iterable[str], project: str) -> dict[str, TurnoutError]:
        """Returns why keys could not be deleted. One that does not exist is none of them."""
        if remote := self._remote(bucket, project):
            return remote.delete_many(list(keys))
        return self._embedded.delete_many(bucket, keys, project)

    def copy(
        self,
        bucket: str,
        key: str,
        to_bucket: str,
        to_key: str,
        project: str,
        content_type: str | None = None,
        metadata: dict[str, str] | None = None,
        expect: Expect = None,
    ) -> Info:
        """`content_type`, `metadata`: None keeps those of the source."""
        source, target = self._remote(bucket, project), self._remote(to_bucket, project)
        if not source and not target:
            return self._embedded.copy(
                bucket, key, to_bucket, to_key, project, content_type, metadata, expect
            )
        as_it_is = content_type is None and metadata is None
        if source and source is target and as_it_is and source.can_copy(source.info(key)):
            return source.copy_within(key, to_key, expect)
        return self._copy_through(bucket, key, to_bucket, to_key, project, content_type, metadata, expect)

    def uploads(self) -> Path:
        """The directory of incomplete uploads."""
        return self._embedded.uploads()

    def _copy_through(
        self,
        bucket: str,
        key: str,
        to_bucket: str,
        to_key: str,
        project: str,
        content_type: str | None,
        metadata: dict[str, str] | None,
        expect: Expect,
    ) -> Info:
        opened = self.read(bucket, key, project)
        try:
            info = opened.info
            kind = info.content_type if content_type is None else content_type
            facts = info.metadata if metadata is None else metadata
            writer = self.writer(to_bucket, to_key, project, kind, facts, expect)
            try:
                copy_bytes(opened, writer.write, 0, info.size)
                return writer.commit()
            finally:
                writer.abort()
        finally:
            opened.close()

    def _remote(self, bucket: str, project: str) -> "RemoteObjects | None":
        """None for an embedded bucket. Raises Denied for another project's."""
        if self._settings(bucket) is None:
            return None
        name = f"{self._scheme}://{bucket}"
        check_bucket(name, bucket)
        try:
            location = self._storage.locate(name, project)
        except Misconfigured:
            raise TimedOut(f"{name}: the settings of this bucket do not work; ask the operator") from None
        assert isinstance(location, RemotePath)
        return self._opened.get(name, location.settings)

    def _settings(self, bucket: str) -> RemoteSettings | None:
        return self._storage.remote.settings(self._scheme, bucket)


ClientBucketsOf = Callable[[str], ClientBuckets]
"""By the scheme of a client."""


def client_buckets(storage: Storage) -> ClientBucketsOf:
    opened = OpenBuckets(storage)
    made = {scheme: ClientBuckets(storage, scheme, opened) for scheme in ("gs", "s3", "obs", "cos")}
    return made.__getitem__


def copy_bytes(opened: Opened, write: Callable[[bytes], None], begin: int, end: int) -> None:
    """Blocks. Raises WrongState if the source becomes shorter meanwhile."""
    while begin < end:
        piece = opened.pread(min(_PIECE, end - begin), begin)
        if not piece:
            raise WrongState("the source became shorter during the copy")
        write(piece)
        begin += len(piece)


def _made_there(name: str) -> Denied:
    return Denied(f"{name!r} is in a remote object store: make and remove buckets there", field="name")
