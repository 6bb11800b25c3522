"""Writes an object: a temporary file outside of the buckets, which gets its name when it is complete."""

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal

from turnout.errors import AlreadyExists, Invalid, Misconfigured, Unavailable, WrongState
from turnout.storage.directories import MissingDirectory, NotDirectory, keep_directory, make_directory
from turnout.storage.embedded import checksums
from turnout.storage.embedded.attributes import Attributes, Info, describe, write_attributes
from turnout.storage.owners import FILE, Owner
from turnout.vault.chunks import SealedWriter

Expect = int | Literal["absent"] | None
Enter = Callable[[tuple[str, ...]], AbstractContextManager[int]]
"""Opens a directory in a bucket by its names. Makes missing directories."""

_PIECE = 1 << 20
_NEW = "put-"
_TRIES = 10
_LOCKS = [threading.Lock() for _ in range(64)]


class Writer:
    """Call commit() or abort() at the end. Before commit() nothing of the object is visible.

    abort() may be called from another thread during a write: it waits for the write.
    """

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
        self._enter = enter
        self._owner = owner
        self._bucket, self._parts = place
        self._content_type, self._metadata = content_type, metadata
        self._expect: Expect = expect
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._whole_md5 = True
        self._crc32c = 0
        self.size = 0
        self._path = uploads / f"{_NEW}{secrets.token_hex(16)}"
        self._lock = threading.RLock()
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)  # sweep() skips files that are locked
        self._sealing = sealing
        self._sealed = sealing is not None
        if sealing:
            self._append(sealing.begin)

    @property
    def key(self) -> str:
        return "/".join(self._parts)

    @property
    def md5(self) -> str | None:
        """The md5 of what was written so far; None after take()."""
        return self._md5.hexdigest() if self._whole_md5 else None

    @property
    def crc32c(self) -> str:
        """The crc32c of what was written so far."""
        return checksums.encode(self._crc32c)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        with self._lock:
            self._md5.update(data)
            self._crc32c = checksums.extend(
                self._crc32c, data if isinstance(data, bytes) else memoryview(data)
            )
            self._append(self._sealing.add(data) if self._sealing else data)
            self.size += len(data)

    def _append(self, data: bytes | bytearray | memoryview) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._file, rest) :]
            except OSError as error:
                raise self._failed(error) from None

    def take_sealed(self, file: int, info: Info) -> None:
        """Copies an encrypted object without decrypting it. Pass its etag to commit()."""
        self.take(file, os.fstat(file).st_size, info.crc32c or checksums.encode(0))
        self.size, self._crc32c = info.size, checksums.decode(info.crc32c or checksums.encode(0))
        self._sealed = True

    def take(self, file: int, size: int, crc32c: str, offset: int = 0) -> None:
        """Appends a part of an open file whose crc32c is known. The kernel copies the bytes."""
        remaining, at = size, offset
        while remaining:
            # In steps, so that abort() does not wait for the whole copy.
            with self._lock:
                try:
                    count = _copy(file, self._file, remaining, at)
                except OSError as error:
                    raise self._failed(error) from None
            if not count:
                raise WrongState(f"{self.key!r}: the source became shorter during the copy")
            remaining, at = remaining - count, at + count
        self._whole_md5 = self._whole_md5 and not size
        self._crc32c = checksums.combine(self._crc32c, checksums.decode(crc32c), size)
        self.size += size

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

    def abort(self) -> None:
        """May be called at any time, also after commit()."""
        with self._lock:
            if self._file < 0:
                return
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
            os.close(self._file)
            self._file = -1

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
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return Unavailable(f"{self.key!r} cannot be written: the disk is full")
        if error.errno == errno.EOPNOTSUPP and self._sealed:
            return Misconfigured(
                f"{self.key!r} cannot be encrypted: the file system of the buckets has no extended attributes"
            )
        if error.errno == errno.EXDEV:
            return Misconfigured(
                f"the bucket {self._bucket!r} is on another file system than the other buckets"
            )
        return Misconfigured(f"{self.key!r} cannot be written: {error.strerror}")


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


def sweep(uploads: Path) -> None:
    """Removes the temporary files of a service that was killed."""
    for path in uploads.glob(f"{_NEW}*"):
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
        except BlockingIOError:
            continue
        finally:
            os.close(file)


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


def _copy(source: int, target: int, size: int, at: int) -> int:
    try:
        # 64 MB at a time: the call cannot be interrupted.
        return os.copy_file_range(source, target, min(size, 64 << 20), offset_src=at)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
    return os.write(target, os.pread(source, min(_PIECE, size), at))


def _is_directory(key: str) -> Invalid:
    return Invalid(f"{key!r} cannot be an object, because there are objects below {key + '/'!r}", field="key")


def _sync(here: int) -> None:
    directory = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=here)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
