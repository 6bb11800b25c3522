"""Embedded buckets as an object store: whole objects under keys, with sums, types and metadata.

The files are the ones that jobs see. Links, pipes and the like that a job makes are no objects, and neither are files
whose names cannot be keys. All calls block: what serves requests makes them in threads.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from turnout.errors import AlreadyExists, Denied, Invalid, Misconfigured, NotFound, WrongState
from turnout.storage.buckets import Buckets
from turnout.storage.embedded_attributes import UNKNOWN_TYPE, Info, check, describe
from turnout.storage.embedded_keys import can_be_key, split
from turnout.storage.embedded_listing import Asked, Page, page
from turnout.storage.embedded_writer import Expect, Writer, check_expected, one_at_a_time, read_all, sweep
from turnout.storage.source import InBucket, check_bucket, parse
from turnout.storage.walk import MADE, Blocked, Missing
from turnout.vault import KeyRing
from turnout.vault.chunks import Sealing, Unsealed

if TYPE_CHECKING:
    from turnout.vault.cipher import DataKey

__all__ = ["Embedded", "Expect", "Info", "Page", "Writer"]

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Embedded:
    """Everywhere: NotFound if bucket or key are not there, Denied for another project's bucket, Invalid for a name
    that cannot be one."""

    def __init__(self, buckets: Buckets, ring: KeyRing | None = None) -> None:
        self._buckets = buckets
        self._ring = KeyRing() if ring is None else ring
        self.mounted: Callable[[], Iterable[str]] = tuple
        """The sources of all mounts that jobs have now: such a directory stays, even if it is empty."""

    def buckets(self, project: str) -> list[tuple[str, int]]:
        """Names, each with when it was made (ns)."""
        return self._buckets.all(project)

    def has_bucket(self, name: str, project: str) -> bool:
        return self._buckets.has(name, project)

    def make_bucket(self, name: str, project: str) -> None:
        """Raises AlreadyExists if it is this project's already, or open to it."""
        check_bucket(name, name)
        if self._buckets.has(name, project):
            raise AlreadyExists(f"the bucket {name!r} exists", field="bucket")
        with self._buckets.enter(name, (), project, make=True):
            return

    def remove_bucket(self, name: str, project: str) -> None:
        """Raises WrongState if it is not empty, or a job has it. The name stays this project's."""
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
        """The file, open for reading, and what it is. A key with a slash at its end is a directory, and is empty."""
        parts = split(key)
        kind = stat.S_ISREG if parts[-1] else stat.S_ISDIR
        try:
            with self._buckets.enter(bucket, parts[:-1], project) as here:
                file = os.open(parts[-1] or ".", _READ, dir_fd=here)
        except (Missing, Blocked):
            raise _no_key(bucket, key) from None
        except OSError as error:
            if error.errno == errno.EACCES:
                raise Denied(f"{key!r} may not be read: its permissions are closed") from None
            raise _no_key(bucket, key) from None  # also a link or a socket
        status = os.fstat(file)
        if not kind(status.st_mode):
            os.close(file)
            raise _no_key(bucket, key)
        return file, describe(key, file, status)

    def pread(self, file: int, info: Info) -> Callable[[int, int], bytes]:
        """How the bytes of what `open` gave are read: as `os.pread` does, without the file. Raises KeyGone.

        So may the function that it returns, for an object that is sealed.
        """
        return Unsealed(file, self._ring).pread if info.sealed else partial(os.pread, file)

    def ever_sealed(self, bucket: str) -> bool:
        """Whether a sealed object was ever put into it."""
        return self._buckets.has_sealed(bucket)

    def holds_sealed(self, bucket: str, prefix: str, project: str) -> bool:
        """Whether one of the objects that begin so is sealed."""
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
    ) -> Page:
        """In the order of the keys' bytes. With `after` a prefix that was given, what it stands for is passed over."""
        base, _, _ = prefix.rpartition("/")
        parts = tuple(base.split("/")) if base else ()
        if prefix.startswith("/") or (parts and not can_be_key(base)):
            parts, limit = (), 0
        try:
            with self._buckets.enter(bucket, parts, project) as here:
                return page(here, base and base + "/", Asked(prefix, delimiter, after), limit)
        except (Missing, Blocked):
            return Page([], [], "")

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
        """The bucket is made if it is missing, when the object is committed.

        `expect`: "absent" or the generation that the object must have now, checked at commit(). A key with a slash at
        its end makes a directory.
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
            self._buckets.owner,
            (bucket, parts),
            content_type or UNKNOWN_TYPE,
            metadata or {},
            expect,
            Sealing(seal_with) if seal_with else None,
        )

    def delete(self, bucket: str, key: str, project: str, expect: int | None = None) -> None:
        """Directories that were only there for it go too. A directory with something in it stays, without an error."""
        parts = split(key)
        try:
            with self._buckets.enter(bucket, parts[:-1], project) as here:
                if parts[-1]:
                    self._unlink(here, bucket, key, expect)
        except (Missing, Blocked):
            raise _no_key(bucket, key) from None
        self._prune(bucket, parts[:-1], project, asked=not parts[-1])

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
        """Shares the blocks where the file system can. None: type or metadata as they are."""
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
                    raise WrongState(f"{key!r} was written to while it was being copied")
                return writer.commit(info.etag, info.md5 or "")
        finally:
            os.close(file)

    def uploads(self) -> Path:
        """A directory on the buckets' file system for what is not whole yet; `put-*` in it are the writers'."""
        try:
            return self._buckets.uploads()
        except OSError as error:
            raise Misconfigured(f"the buckets cannot be written to: {error.strerror}") from None

    def sweep(self) -> None:
        """Removes what a killed service left half-written."""
        sweep(self._buckets.uploads())

    def _unlink(self, here: int, bucket: str, key: str, expect: int | None) -> None:
        name = key.rpartition("/")[2]
        try:
            status = os.stat(name, dir_fd=here, follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode):
                raise _no_key(bucket, key)
            with one_at_a_time(bucket, key):
                check_expected(here, name, key, expect)
                os.unlink(name, dir_fd=here)
        except FileNotFoundError:
            raise _no_key(bucket, key) from None
        except OSError as error:
            raise Denied(f"{key!r} cannot be deleted: {error.strerror}") from None

    def _prune(self, bucket: str, parts: tuple[str, ...], project: str, asked: bool) -> None:
        """`asked`: the first one was meant itself, however it came to be."""
        while parts:
            try:
                with self._buckets.enter(bucket, parts[:-1], project) as above:
                    if not asked:
                        os.getxattr(f"/proc/self/fd/{above}/{parts[-1]}", MADE, follow_symlinks=False)
                    if self._is_mounted(bucket, parts):
                        return
                    os.rmdir(parts[-1], dir_fd=above)
            except (OSError, Invalid, NotFound):
                return  # not empty, not ours to remove, or gone
            parts, asked = parts[:-1], False

    def _is_mounted(self, bucket: str, parts: tuple[str, ...]) -> bool:
        here = [source for source in self.mounted() if f"://{bucket}" in source]
        return any(parse(source) == InBucket(bucket, parts) for source in here)


class _Aborting:
    def __init__(self, writer: Writer) -> None:
        self.close = writer.abort


def _no_key(bucket: str, key: str) -> NotFound:
    return NotFound(f"there is no {key!r} in the bucket {bucket!r}", field="key")
