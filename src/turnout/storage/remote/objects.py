"""A bucket in a remote store as clients see it: the calls of `storage/clients.py`. All of them block."""

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnout.errors import AlreadyExists, Denied, NotFound, TimedOut, TurnoutError, Unsupported, WrongState
from turnout.storage.embedded.attributes import Info, check
from turnout.storage.embedded.keys import split
from turnout.storage.embedded.listing import ObjectPage
from turnout.storage.embedded.objects import Opened
from turnout.storage.embedded.writer import Expect
from turnout.storage.remote.facts import describe
from turnout.storage.remote.failures import explained, no_bucket
from turnout.storage.remote.listing import Listing
from turnout.storage.remote.reader import RemoteReader
from turnout.storage.remote.settings import RemoteSettings
from turnout.storage.remote.store import open_store
from turnout.storage.remote.writer import RemoteWriter, attributes, directory
from turnout.storage.streams import requested_range

if TYPE_CHECKING:
    from turnout.storage.remote.store import ObjectStore

_PATIENCE = 5.0
"""Seconds for which requests to a failing store are repeated. Clients have retries of their own."""
_SILENCE = timedelta(seconds=20)
_SEEN_SECONDS = 30.0
_LARGEST_COPY = 5 << 30
"""The largest object that stores copy by one request."""


class RemoteObjects:
    def __init__(self, settings: RemoteSettings, url: str, uploads: Callable[[], Path]) -> None:
        """`settings`: with credentials. `url`: the bucket as its clients know it, for messages.

        `uploads`: the directory of incomplete uploads.
        """
        self._settings = settings
        self._url = url
        self._uploads = uploads
        self._seen = 0.0

    @cached_property
    def _store(self) -> "ObjectStore":
        with explained(self._url):
            return open_store(self._settings, _PATIENCE, _SILENCE)

    @cached_property
    def _listing(self) -> Listing:
        return Listing(self._store)

    def exists(self) -> bool:
        """Whether the store has the bucket. Raises Denied if it does not say, and TimedOut."""
        if time.monotonic() < self._seen:
            return True
        try:
            self._look()
        except NotFound:
            return False
        return True

    def info(self, key: str) -> Info:
        if key.endswith("/"):
            return self._directory(key)
        with explained(self._url, key):
            result = self._store.get(key, options={"head": True})  # pyright: ignore[reportArgumentType]
        return describe(result.meta, _texts(result.attributes))

    def read(self, key: str, most: int, part: str) -> Opened:
        if key.endswith("/"):
            return Opened(self._directory(key), -1, lambda size, at: b"", b"")
        wanted = requested_range(part)
        options: Any = {"range": wanted} if wanted else {}
        try:
            with explained(self._url, key):
                result = self._store.get(key, options=options)
        except NotFound:
            self._require()
            raise
        except Unsupported:
            if not wanted:
                raise
            # The part is not within the object: the caller says so, when it knows the size.
            info = self.info(key)
            return Opened(info, -1, RemoteReader(self._store, self._url, key, None, info.size).pread, None)
        info = describe(result.meta, _texts(result.attributes))
        if not wanted and info.size <= most:
            with explained(self._url, key):
                content = bytes(result.bytes())
            return Opened(info, -1, lambda size, at: content[at : at + size], content)
        reader = RemoteReader(self._store, self._url, key, result.meta["e_tag"], info.size)
        reader.use(result)
        return Opened(info, -1, reader.pread, None)

    def list(self, prefix: str, delimiter: str, after: str, limit: int) -> ObjectPage:
        if prefix.startswith("/"):
            return ObjectPage([], [], "")
        with explained(self._url):
            return self._listing.page(prefix, delimiter, after, limit)

    def writer(self, key: str, content_type: str, metadata: dict[str, str], expect: Expect) -> RemoteWriter:
        """Raises NotFound if the bucket is missing: only somebody with rights in the store can make it."""
        split(key)
        check(content_type, metadata)
        self._require()
        return RemoteWriter(
            self._uploads(),
            self._store,
            self._url,
            key,
            attributes(content_type, metadata),
            expect == "absent",
            lambda: self._check(key, expect),
            self.info,
        )

    def delete(self, key: str, expect: int | None) -> None:
        """Raises NotFound where the store says that there is no such object: S3 does not."""
        if key.endswith("/"):
            return
        self._check(key, expect)
        with explained(self._url, key):
            self._store.delete(key)

    def delete_many(self, keys: Sequence[str]) -> dict[str, TurnoutError]:
        try:
            with explained(self._url):
                self._store.delete([key for key in keys if not key.endswith("/")])
        except TurnoutError:
            return self._delete_each(keys)
        return {}

    def copy_within(self, key: str, to_key: str, expect: Expect) -> Info:
        """The store copies, with type and metadata."""
        self._check(to_key, expect)
        with explained(self._url, key):
            self._store.copy(key, to_key)
        return self.info(to_key)

    def can_copy(self, info: Info) -> bool:
        return info.size <= _LARGEST_COPY

    def _delete_each(self, keys: Sequence[str]) -> dict[str, TurnoutError]:
        failed: dict[str, TurnoutError] = {}
        for at, key in enumerate(keys):
            try:
                self.delete(key, None)
            except NotFound as error:
                if error.field == "bucket":
                    raise
            except TimedOut as error:
                # A store that is away would be waited for once for each key.
                return failed | dict.fromkeys(keys[at:], error)
            except TurnoutError as error:
                failed[key] = error
        return failed

    def _check(self, key: str, expect: Expect) -> None:
        """Raises AlreadyExists or WrongState if the existing object is not the expected one."""
        if expect is None or key.endswith("/"):
            return
        try:
            found = self.info(key).generation
        except NotFound:
            if expect == "absent":
                return
            raise WrongState(f"{key!r} does not exist, so it has no generation {expect}") from None
        if expect == "absent":
            raise AlreadyExists(f"{key!r} exists")
        if found != expect:
            raise WrongState(f"{key!r} has the generation {found}, not {expect}")

    def _require(self) -> None:
        """Raises NotFound if the bucket is missing. Whoever may not list it learns that from the call itself."""
        try:
            found = self.exists()
        except Denied:
            return
        if not found:
            raise no_bucket(self._url)

    def _look(self) -> None:
        with explained(self._url):
            next(iter(self._store.list(chunk_size=1)), None)
        self._seen = time.monotonic() + _SEEN_SECONDS

    def _directory(self, key: str) -> Info:
        if not self.list(key, "", "", 1).objects:
            raise NotFound(f"there is no {key!r} in the bucket {self._url}", field="key")
        return directory(key)


def _texts(found: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in found.items()}
