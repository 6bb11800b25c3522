"""A path in an embedded bucket, as a job mounts it: a directory or one object."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from turnout.errors import NotFound
from turnout.storage.directories import Directory
from turnout.storage.embedded.objects import EmbeddedStore, Info, Writer
from turnout.storage.presence import Presence
from turnout.storage.source import InBucket

if TYPE_CHECKING:
    from turnout.vault.cipher import DataKey

Pread = Callable[[int, int], bytes]


class EmbeddedPath:
    """Names are relative to the path. All calls block."""

    def __init__(self, store: EmbeddedStore, source: str, place: InBucket, project: str) -> None:
        self._store = store
        self._source = source
        self._place = place
        self._bucket = place.bucket
        self._parts = place.parts
        self._project = project

    @property
    def name(self) -> str:
        """The last name in the path."""
        return self._parts[-1] if self._parts else ""

    def bind(self, read_only: bool) -> Directory:
        """Makes the bucket and the directory if they are missing and the job may write to them.

        Raises NotFound, Invalid, or Denied for another project's.
        """
        if read_only:
            self.check_exists()
        return Directory(
            *self._store.bind(self._source, self._place, self._project, not read_only), read_only
        )

    def presence(self) -> Presence:
        """Raises Denied."""
        return self._store.presence(self._bucket, self._parts, self._project)

    def check_exists(self) -> None:
        """Raises NotFound if there is no object at the path, and Denied."""
        found = self.presence()
        if not found.exists:
            raise found.missing(self._source)

    def open_object(self) -> int:
        """A descriptor of the file. Raises NotFound, Invalid or Denied."""
        if not self._parts:
            raise NotFound(f"{self._source!r} is a whole bucket")
        return self._store.open(self._bucket, "/".join(self._parts), self._project)[0]

    def objects(self) -> Iterator[tuple[str, Info]]:
        """All objects below the path, or the one object that it is. A name that ends in a slash is an empty directory.

        Raises NotFound if there are none.
        """
        single = self._single()
        if single:
            yield self.name, single
            return
        after, empty = "", True
        prefix = self._prefix
        while True:
            page = self._store.list(self._bucket, self._project, prefix, after=after)
            for info in page.objects:
                empty = False
                if info.key != prefix:
                    yield info.key.removeprefix(prefix), info
            if not page.next:
                break
            after = page.next
        if empty:
            raise NotFound(f"there is nothing in {self._bucket!r} below {prefix!r}")

    def holds_sealed(self) -> bool:
        """Whether one of its objects is encrypted. Quick if the bucket never had an encrypted object."""
        if not self._store.ever_sealed(self._bucket):
            return False
        try:
            single = self._single()
            return (
                single.sealed
                if single
                else self._store.holds_sealed(self._bucket, self._prefix, self._project)
            )
        except NotFound:
            return False

    @contextmanager
    def open(self, name: str) -> Iterator[tuple[Pread, Info]]:
        """Raises NotFound or KeyGone."""
        key = "/".join(self._parts) if self._single() else self._prefix + name
        file, info = self._store.open(self._bucket, key, self._project)
        try:
            yield self._store.pread(file, info), info
        finally:
            os.close(file)

    def writer(self, name: str, key: "DataKey | None") -> Writer:
        """`key`: encrypts the object."""
        return self._store.writer(self._bucket, self._prefix + name, self._project, seal_with=key)

    @property
    def _prefix(self) -> str:
        return "".join(f"{part}/" for part in self._parts)

    def _single(self) -> Info | None:
        if self._source.endswith("/") or not self._parts:
            return None
        try:
            return self._store.info(self._bucket, "/".join(self._parts), self._project)
        except NotFound:
            return None
