"""Writes an object: a temporary file outside of the buckets, which gets its name when it is complete."""

import contextlib
import errno
import hashlib
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal

from turnout.errors import AlreadyExists, Invalid, Misconfigured, WrongState
from turnout.storage.directories import MissingDirectory, NotDirectory, keep_directory, make_directory
from turnout.storage.embedded import checksums
from turnout.storage.embedded.attributes import Attributes, Info, describe, write_attributes
from turnout.storage.incoming import Incoming
from turnout.storage.owners import FILE, Owner
from turnout.vault.chunks import SealedWriter

Expect = int | Literal["absent"] | None
Enter = Callable[[tuple[str, ...]], AbstractContextManager[int]]
"""Opens a directory in a bucket by its names. Makes missing directories."""

_PIECE = 1 << 20
_TRIES = 10
_LOCKS = [threading.Lock() for _ in range(64)]


class Writer(Incoming):
    """Call commit() or abort() at the end. Before commit() nothing of the object is visible."""

    def __init__(
        self,
        uploads: Path,
        enter: Enter,
        owner: Callable[[], Owner | bool],
        place: tuple[str, tuple[str, ...]],
        content_type: str,
        metadata: dict[str, str],
        expect: Expect,
        sealing: SealedWriter | None = None,
    ) -> None:
        """`sealing`: encrypts the object before it reaches the disk."""
        super().__init__(uploads, "/".join(place[1]))
        self._enter = enter
        self._owner = owner
        self._bucket, self._parts = place
        self._content_type, self._metadata = content_type, metadata
        self._expect: Expect = expect
        self._sealing = sealing
        self._sealed = sealing is not None
        if sealing:
            self._append(sealing.begin)

    def _encode(self, data: bytes | bytearray | memoryview) -> bytes | bytearray | memoryview:
        return self._sealing.add(data) if self._sealing else data

    def take_sealed(self, file: int, info: Info) -> None:
        """Copies an encrypted object without decrypting it. Pass its etag to commit()."""
        self.take(file, os.fstat(file).st_size, info.crc32c or checksums.encode(0))
        self.size, self._crc32c = info.size, checksums.decode(info.crc32c or checksums.encode(0))
        self._sealed = True

    def commit(self, etag: str = "", md5: str = "") -> Info:
        """When this returns, the object is complete, on disk, and visible under its key.

        `md5`: in hex, if it is known although take() was used. `etag`: used instead of the md5. Raises AlreadyExists or
        WrongState if the existing object is not the expected one, Invalid if the key cannot be used.
        """
        with self._lock:
            try:
                if not self._parts[-1]:
                    return self._make_directory()
                self._finish(etag, md5)
                return self._place()
            except OSError as error:
                raise self._failed(error) from None
            finally:
                self.abort()

    def _make_directory(self) -> Info:
        if self.size:
            raise Invalid(
                f"{self.key!r} ends with a slash, so it is a directory and has no bytes", field="key"
            )
        name = self._parts[-2]
        with self._reach(self._parts[:-2]) as above:
            if self._expect == "absent" and _exists(above, name):
                raise AlreadyExists(f"{self.key!r} exists")
            make_directory(above, name, self._owner(), mark=False)
        with self._reach(self._parts[:-1]) as here:
            keep_directory(here)
            return describe(self.key, here, os.fstat(here))

    def _finish(self, etag: str, md5: str) -> None:
        if self._sealing:
            self._append(self._sealing.finish())
        owner = self._owner()
        if isinstance(owner, bool):
            os.fchmod(self._file, 0o640)
        else:
            os.fchown(self._file, owner.uid, owner.gid)
            os.fchmod(self._file, FILE)
        # The kernel's own times are coarse: two writes in a row could get the same.
        now = time.time_ns()
        os.utime(self._file, ns=(now, now))
        status = os.fstat(self._file)
        known = md5 or self.md5
        fallback = hashlib.md5(f"{now}:{self._path.name}".encode(), usedforsecurity=False).hexdigest() + "-1"
        write_attributes(
            self._file,
            Attributes(
                status.st_size,
                status.st_mtime_ns,
                etag or known or fallback,
                known,
                self.crc32c,
                self._content_type,
                self._metadata,
                self.size if self._sealed else None,
            ),
        )
        os.fsync(self._file)

    def _place(self) -> Info:
        name = self._parts[-1]
        with one_at_a_time(self._bucket, self.key):
            for attempt in range(_TRIES):
                try:
                    with self._reach(self._parts[:-1]) as here:
                        check_expected(here, name, self.key, self._expect)
                        self._name(here, name)
                        _sync(here)
                        return describe(self.key, self._file, os.fstat(self._file))
                except (FileNotFoundError, MissingDirectory):
                    # Another request has deleted the last object in the directory, and the directory with it.
                    if attempt + 1 == _TRIES:
                        raise
        raise AssertionError

    def _name(self, here: int, name: str) -> None:
        try:
            if self._expect == "absent":
                os.link(self._path, name, dst_dir_fd=here)
            else:
                os.rename(self._path, name, dst_dir_fd=here)
        except FileExistsError:
            raise AlreadyExists(f"{self.key!r} exists") from None
        except (IsADirectoryError, NotADirectoryError):
            raise _is_directory(self.key) from None

    @contextlib.contextmanager
    def _reach(self, parts: tuple[str, ...]) -> Iterator[int]:
        with contextlib.ExitStack() as stack:
            try:
                here = stack.enter_context(self._enter(parts))
            except NotDirectory as error:
                raise Invalid(
                    f"{self.key!r} cannot be written, because a part of its path is an object: {error.message}",
                    field="key",
                ) from None
            yield here

    def _failed(self, error: OSError) -> Exception:
        if error.errno == errno.EOPNOTSUPP and self._sealed:
            return Misconfigured(
                f"{self.key!r} cannot be encrypted: the file system of the buckets has no extended attributes"
            )
        if error.errno == errno.EXDEV:
            return Misconfigured(
                f"the bucket {self._bucket!r} is on another file system than the other buckets"
            )
        return super()._failed(error)


def one_at_a_time(bucket: str, key: str) -> threading.Lock:
    """The lock to hold while an object is checked and then changed."""
    return _LOCKS[hash((bucket, key)) % len(_LOCKS)]


def check_expected(here: int, name: str, key: str, expect: Expect) -> None:
    """Raises WrongState, AlreadyExists or Invalid if the existing object is not the expected one."""
    try:
        status = os.stat(name, dir_fd=here, follow_symlinks=False)
    except FileNotFoundError:
        if isinstance(expect, int):
            raise WrongState(f"{key!r} does not exist, so it has no generation {expect}") from None
        return
    if stat.S_ISDIR(status.st_mode):
        raise _is_directory(key)
    if expect == "absent":
        raise AlreadyExists(f"{key!r} exists")
    if expect is not None and status.st_mtime_ns != expect:
        raise WrongState(f"{key!r} has the generation {status.st_mtime_ns}, not {expect}")


def read_all(file: int, size: int, write: Callable[[bytes], None]) -> None:
    at = 0
    while at < size:
        piece = os.pread(file, min(_PIECE, size - at), at)
        if not piece:
            raise WrongState("the source became shorter during the copy")
        write(piece)
        at += len(piece)


def _exists(above: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=above, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _is_directory(key: str) -> Invalid:
    return Invalid(f"{key!r} cannot be an object, because there are objects below {key + '/'!r}", field="key")


def _sync(here: int) -> None:
    directory = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=here)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
