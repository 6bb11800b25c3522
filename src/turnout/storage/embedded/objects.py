"""Embedded buckets as an object store: objects by key, with checksums, types and metadata.

The files are the ones that jobs see in their mounts. Links and other special files are not objects, and neither are
files whose names cannot be keys. All calls block, so call them in threads.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from turnout.errors import AlreadyExists, Denied, Invalid, Misconfigured, NotFound, TurnoutError, WrongState
from turnout.storage.directories import MADE_FOR_OBJECT, MissingDirectory, NotDirectory
from turnout.storage.embedded.attributes import UNKNOWN_TYPE, Info, check, describe
from turnout.storage.embedded.buckets import Buckets
from turnout.storage.embedded.keys import can_be_key, split
from turnout.storage.embedded.listing import ListOptions, ObjectPage, page
from turnout.storage.embedded.writer import Expect, Writer, check_expected, one_at_a_time, read_all
from turnout.storage.incoming import sweep
from turnout.storage.presence import Presence, find_presence
from turnout.storage.source import InBucket, check_bucket, parse, without_account
from turnout.vault import KeyRing
from turnout.vault.chunks import SealedReader, SealedWriter

if TYPE_CHECKING:
    from turnout.vault.cipher import DataKey

__all__ = ["EmbeddedStore", "Expect", "Info", "ObjectPage", "Writer"]

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Opened(NamedTuple):
    """An object that is being read."""

    info: Info
    file: int
    """Its descriptor, which the caller closes; -1: there is none."""
    pread: Callable[[int, int], bytes]
    content: bytes | None
    """If all of it was read."""

    @property
    def plain(self) -> bool:
        """Whether the bytes of the object are those of the file."""
        return self.file >= 0 and not self.info.sealed

    def close(self) -> None:
        if self.file >= 0:
            os.close(self.file)


class EmbeddedStore:
    """All calls raise NotFound for a missing bucket or key, Denied for another project's bucket, and Invalid for a
    malformed name."""

    def __init__(self, buckets: Buckets, ring: KeyRing | None = None) -> None:
        self._buckets = buckets
        self._ring = KeyRing() if ring is None else ring
        self.mounted: Callable[[], Iterable[str]] = tuple
        """The sources of all mounts of current jobs. Those directories are kept even if they are empty."""

    def buckets(self, project: str) -> list[tuple[str, int]]:
        """Names with creation times (ns)."""
        return self._buckets.all(project)

    def real_name(self, bucket: str) -> str:
        """See `Buckets.real_name`."""
        return self._buckets.real_name(bucket)

    def has_bucket(self, name: str, project: str) -> bool:
        return self._buckets.has(name, project)

    def is_shared(self, bucket: str, project: str) -> bool:
        """See `Buckets.is_shared`."""
        return self._buckets.is_shared(bucket, project)

    def bind(self, source: str, place: InBucket, project: str, make: bool) -> tuple[Path, tuple[str, ...]]:
        """The directory of all buckets, and the names from there down to this one. `make`: make it if it is missing."""
        return self._buckets.bind(source, place, project, make)

    def make_bucket(self, name: str, project: str) -> None:
        """Raises AlreadyExists if the project can use a bucket of this name already."""
        check_bucket(name, name)
        if self._buckets.has(name, project):
            raise AlreadyExists(f"the bucket {name!r} exists", field="bucket")
        with self._buckets.enter(name, (), project, make=True):
            return

    def remove_bucket(self, name: str, project: str) -> None:
        """Raises WrongState if it is not empty or a job mounts it. The name stays reserved for the project."""
        if self._is_mounted(name, ()):
            raise WrongState(f"the bucket {name!r} is mounted by a job", field="bucket")
        try:
            self._buckets.remove(name, project)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise Misconfigured(f"the bucket {name!r} cannot be removed: {error.strerror}") from None
            raise WrongState(f"the bucket {name!r} is not empty", field="bucket") from None

    def info(self, bucket: str, key: str, project: str) -> Info:
        file, info = self.open(bucket, key, project)
        os.close(file)
        return info

    def open(self, bucket: str, key: str, project: str) -> tuple[int, Info]:
        """A descriptor for reading, and the object's info. A key that ends with a slash is a directory."""
        parts = split(key)
        kind = stat.S_ISREG if parts[-1] else stat.S_ISDIR
        try:
            with self._buckets.enter(bucket, parts[:-1], project) as here:
                file = os.open(parts[-1] or ".", _READ, dir_fd=here)
        except (MissingDirectory, NotDirectory):
            raise _no_key(bucket, key) from None
        except OSError as error:
            if error.errno == errno.EACCES:
                raise Denied(f"{key!r} cannot be read: permission denied") from None
            raise _no_key(bucket, key) from None  # also a link or a socket
        status = os.fstat(file)
        if not kind(status.st_mode):
            os.close(file)
            raise _no_key(bucket, key)
        return file, describe(key, file, status)

    def read(self, bucket: str, key: str, project: str, most: int) -> "Opened":
        """Opens the object. One of at most `most` bytes is read at once: a caller needs no more threads for it."""
        file, info = self.open(bucket, key, project)
        try:
            pread = self.pread(file, info)
            content = pread(info.size, 0) if info.size <= most else None
        except BaseException:
            os.close(file)
            raise
        if content is None or len(content) != info.size:  # a job is just writing it
            return Opened(info, file, pread, None)
        os.close(file)
        return Opened(info, -1, pread, content)

    def presence(self, bucket: str, parts: tuple[str, ...], project: str) -> Presence:
        """What is at this path. Makes nothing. Raises Denied."""
        try:
            with self._buckets.enter(bucket, parts[:-1], project) as above:
                return find_presence(above, parts[-1] if parts else ".")
        except NotFound:
            return Presence.NO_BUCKET
        except (MissingDirectory, NotDirectory):
            return Presence.EMPTY

    def pread(self, file: int, info: Info) -> Callable[[int, int], bytes]:
        """A function like `os.pread` without the descriptor, which decrypts encrypted objects.

        Both this call and the function may raise KeyGone.
        """
        return SealedReader(file, self._ring).pread if info.sealed else partial(os.pread, file)

    def ever_sealed(self, bucket: str) -> bool:
        """Whether the bucket ever got an encrypted object."""
        return self._buckets.has_sealed(bucket)

    def holds_sealed(self, bucket: str, prefix: str, project: str) -> bool:
        """Whether an object with this prefix is encrypted."""
        if not self.ever_sealed(bucket):
            return False
        after = ""
        while True:
            found = self.list(bucket, project, prefix, after=after)
            if any(info.sealed for info in found.objects):
                return True
            if not (after := found.next):
                return False

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
        base, _, _ = prefix.rpartition("/")
        parts = tuple(base.split("/")) if base else ()
        if prefix.startswith("/") or (parts and not can_be_key(base)):
            parts, limit = (), 0
        try:
            with self._buckets.enter(bucket, parts, project) as here:
                return page(here, base and base + "/", ListOptions(prefix, delimiter, after), limit)
        except (MissingDirectory, NotDirectory):
            return ObjectPage([], [], "")

    def writer(
        self,
        bucket: str,
        key: str,
        project: str,
        content_type: str = "",
        metadata: dict[str, str] | None = None,
        expect: Expect = None,
        seal_with: "DataKey | None" = None,
    ) -> Writer:
        """commit() creates the bucket if it is missing.

        `expect`: "absent", or the generation that the object must have, checked by commit(). A key that ends with a
        slash makes a directory.
        """
        parts = split(key)
        check_bucket(bucket, bucket)
        check(content_type, metadata or {})
        self._buckets.has(bucket, project)
        if seal_with:
            self.uploads()
            self._buckets.mark_sealed(bucket)
        return Writer(
            self.uploads(),
            lambda above: self._buckets.enter(bucket, above, project, make=True),
            lambda: self._buckets.owner(bucket, project),
            (self._buckets.real_name(bucket), parts),
            content_type or UNKNOWN_TYPE,
            metadata or {},
            expect,
            SealedWriter(seal_with) if seal_with else None,
        )

    def delete(self, bucket: str, key: str, project: str, expect: int | None = None) -> None:
        """Also removes directories that were made for the object. A directory that is not empty stays."""
        parts = split(key)
        try:
            with self._buckets.enter(bucket, parts[:-1], project) as here:
                if parts[-1]:
                    self._unlink(here, bucket, key, expect)
        except (MissingDirectory, NotDirectory):
            raise _no_key(bucket, key) from None
        self._prune(bucket, parts[:-1], project, by_name=not parts[-1])

    def delete_many(self, bucket: str, keys: Iterable[str], project: str) -> dict[str, TurnoutError]:
        """Returns why keys could not be deleted. One that does not exist is none of them."""
        failed: dict[str, TurnoutError] = {}
        for key in keys:
            try:
                self.delete(bucket, key, project)
            except NotFound:
                continue
            except TurnoutError as error:
                failed[key] = error
        return failed

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
        """Shares blocks if the file system can. `content_type`, `metadata`: None keeps those of the source."""
        file, info = self.open(bucket, key, project)
        try:
            kind = info.content_type if content_type is None else content_type
            facts = info.metadata if metadata is None else metadata
            writer = self.writer(to_bucket, to_key, project, kind, facts, expect)
            with contextlib.closing(_Aborting(writer)):
                if info.sealed:
                    self._buckets.mark_sealed(to_bucket)
                    writer.take_sealed(file, info)
                elif info.crc32c is None:
                    read_all(file, info.size, writer.write)
                    return writer.commit()
                else:
                    writer.take(file, info.size, info.crc32c)
                if describe(key, file, os.fstat(file)) != info:
                    raise WrongState(f"{key!r} was changed during the copy")
                return writer.commit(info.etag, info.md5 or "")
        finally:
            os.close(file)

    def uploads(self) -> Path:
        """The directory of incomplete uploads, on the buckets' file system. `put-*` in it belong to writers."""
        try:
            return self._buckets.uploads()
        except OSError as error:
            raise Misconfigured(f"the buckets cannot be written to: {error.strerror}") from None

    def sweep(self) -> None:
        """Removes the incomplete objects of a service that was killed."""
        sweep(self._buckets.uploads())

    def _unlink(self, here: int, bucket: str, key: str, expect: int | None) -> None:
        name = key.rpartition("/")[2]
        try:
            status = os.stat(name, dir_fd=here, follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode):
                raise _no_key(bucket, key)
            with one_at_a_time(self._buckets.real_name(bucket), key):
                check_expected(here, name, key, expect)
                os.unlink(name, dir_fd=here)
        except FileNotFoundError:
            raise _no_key(bucket, key) from None
        except OSError as error:
            raise Denied(f"{key!r} cannot be deleted: {error.strerror}") from None

    def _prune(self, bucket: str, parts: tuple[str, ...], project: str, by_name: bool) -> None:
        """Removes empty directories that were made for objects.

        `by_name`: the first one is removed even if it was not made for an object.
        """
        while parts:
            try:
                with self._buckets.enter(bucket, parts[:-1], project) as above:
                    if not by_name:
                        os.getxattr(
                            f"/proc/self/fd/{above}/{parts[-1]}", MADE_FOR_OBJECT, follow_symlinks=False
                        )
                    if self._is_mounted(bucket, parts):
                        return
                    os.rmdir(parts[-1], dir_fd=above)
            except (OSError, Invalid, NotFound):
                return  # not empty, not made for an object, or already removed
            parts, by_name = parts[:-1], False

    def _is_mounted(self, bucket: str, parts: tuple[str, ...]) -> bool:
        bucket = self._buckets.real_name(bucket)
        mounted = (parse(source) for source in self.mounted() if f"://{without_account(bucket)}" in source)
        return any(
            isinstance(mount, InBucket)
            and (self._buckets.real_name(mount.bucket), mount.parts) == (bucket, parts)
            for mount in mounted
        )


class _Aborting:
    def __init__(self, writer: Writer) -> None:
        self.close = writer.abort


def _no_key(bucket: str, key: str) -> NotFound:
    return NotFound(f"there is no {key!r} in the bucket {bucket!r}", field="key")
