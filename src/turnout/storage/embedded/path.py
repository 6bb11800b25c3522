"""A place in an embedded bucket whose objects are copied out and in, because a job cannot have the bucket itself: they
are sealed, or are to be."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from turnout.errors import NotFound
from turnout.storage.objects import Embedded, Info, Writer
from turnout.storage.source import InBucket

if TYPE_CHECKING:
    from turnout.vault.cipher import DataKey

Pread = Callable[[int, int], bytes]


class Near:
    """Names are relative to the place. All calls block."""

    def __init__(self, embedded: Embedded, place: InBucket, project: str, directory: bool) -> None:
        """`directory`: the place was spelt with a slash at its end, so it is not one object."""
        self._embedded = embedded
        self._bucket = place.bucket
        self._parts = place.parts
        self._project = project
        self._directory = directory

    def objects(self) -> Iterator[tuple[str, Info]]:
        """Those that lie there, or the one that the place itself is. A name that ends with a slash: an empty directory.

        Raises NotFound for a place without any.
        """
        single = self._single()
        if single:
            yield self._parts[-1], single
            return
        after, empty = "", True
        prefix = self._prefix
        while True:
            page = self._embedded.list(self._bucket, self._project, prefix, after=after)
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
        """Quick where nothing in the whole bucket ever was."""
        if not self._embedded.ever_sealed(self._bucket):
            return False
        try:
            single = self._single()
            return (
                single.sealed
                if single
                else self._embedded.holds_sealed(self._bucket, self._prefix, self._project)
            )
        except NotFound:
            return False

    @contextmanager
    def open(self, name: str) -> Iterator[tuple[Pread, Info]]:
        """Raises NotFound or KeyGone."""
        key = "/".join(self._parts) if self._single() else self._prefix + name
        file, info = self._embedded.open(self._bucket, key, self._project)
        try:
            yield self._embedded.pread(file, info), info
        finally:
            os.close(file)

    def writer(self, name: str, key: "DataKey | None") -> Writer:
        """`key`: what to seal it with."""
        return self._embedded.writer(self._bucket, self._prefix + name, self._project, seal_with=key)

    @property
    def _prefix(self) -> str:
        return "".join(f"{part}/" for part in self._parts)

    def _single(self) -> Info | None:
        if self._directory or not self._parts:
            return None
        try:
            return self._embedded.info(self._bucket, "/".join(self._parts), self._project)
        except NotFound:
            return None
