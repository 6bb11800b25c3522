"""Writes an object into a remote store: it is kept on this machine until it is complete, then uploaded at once."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnout.errors import Invalid
from turnout.storage.embedded.attributes import UNKNOWN_TYPE, Info
from turnout.storage.incoming import Incoming
from turnout.storage.remote.failures import explained

if TYPE_CHECKING:
    from turnout.storage.remote.store import ObjectStore

_PART_BYTES = 8 << 20
"""Larger objects are uploaded in parts."""
_LARGE_PART_BYTES = 64 << 20
_LARGE_BYTES = 10_000 * _PART_BYTES // 2
_CONCURRENCY = 2
_uploading = threading.BoundedSemaphore(8)
"""The most uploads in parts at once: each takes the memory of a few parts."""


class RemoteWriter(Incoming):
    """As `embedded.writer.Writer`, for the same callers."""

    def __init__(
        self,
        uploads: Path,
        store: "ObjectStore",
        url: str,
        key: str,
        attributes: dict[str, str],
        absent: bool,
        check: Callable[[], None],
        describe: Callable[[str], Info],
    ) -> None:
        """`absent`: there must be no object. `check`: raises if the existing object is not the expected one.

        `describe`: what is known of an object by its key.
        """
        super().__init__(uploads, key)
        self._store, self._url = store, url
        self._attributes = attributes
        self._absent = absent
        self._check = check
        self._describe = describe

    def commit(self, etag: str = "", md5: str = "") -> Info:
        """When this returns, the store has the object. `etag` is not used: the store makes its own."""
        try:
            self._check()
            if self.key.endswith("/"):
                return self._directory()
            with explained(self._url, self.key):
                self._upload()
            found = self._describe(self.key)
        finally:
            self.abort()
        return found._replace(
            md5=md5 or self.md5,
            crc32c=self.crc32c,
            content_type=self._attributes["Content-Type"],
            metadata={name: value for name, value in self._attributes.items() if name != "Content-Type"},
        )

    def _upload(self) -> None:
        attributes: Any = self._attributes
        with open(os.dup(self._file), "rb") as file:
            file.seek(0)
            if self.size <= _PART_BYTES:
                mode = "create" if self._absent else "overwrite"
                self._store.put(self.key, file.read(), attributes=attributes, mode=mode, use_multipart=False)
                return
            part = _PART_BYTES if self.size < _LARGE_BYTES else _LARGE_PART_BYTES
            with _uploading:
                self._store.put(
                    self.key, file, attributes=attributes, chunk_size=part, max_concurrency=_CONCURRENCY
                )

    def _directory(self) -> Info:
        """There are no directories in a store: one exists as long as there are objects in it."""
        if self.size:
            raise Invalid(
                f"{self.key!r} ends with a slash, so it is a directory and has no bytes", field="key"
            )
        return directory(self.key)


def directory(key: str) -> Info:
    """A directory as an empty object, as embedded buckets show it."""
    empty = "d41d8cd98f00b204e9800998ecf8427e"
    return Info(key, 0, 0, empty, empty, "AAAAAA==", "application/x-directory", {}, 0)


def attributes(content_type: str, metadata: dict[str, str]) -> dict[str, str]:
    return {**metadata, "Content-Type": content_type or UNKNOWN_TYPE}
