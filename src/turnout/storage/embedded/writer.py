"""An object on its way in: a file beside the buckets that gets its name when it is whole."""

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
from turnout.storage import embedded_sums as sums
from turnout.storage.embedded_attributes import Attributes, Info, describe, keep
from turnout.storage.walk import Blocked, Missing, Owner, keep_directory, make_directory
from turnout.vault.chunks import Sealing

Expect = int | Literal["absent"] | None
Enter = Callable[[tuple[str, ...]], AbstractContextManager[int]]
"""The directory of a bucket with these names; what is missing is made."""

_PIECE = 1 << 20
_NEW = "put-"
_TRIES = 10
_LOCKS = [threading.Lock() for _ in range(64)]


class Writer:
    """Ends with commit() or abort(); whatever comes before leaves no trace.

    abort() may come from another thread while a write goes on: it waits for it.
    """

    def __init__(
        self,
        uploads: Path,
        enter: Enter,
        owner: Owner | bool,
        place: tuple[str, tuple[str, ...]],
        content_type: str,
        metadata: dict[str, str],
        expect: Expect,
        sealing: Sealing | None = None,
    ) -> None:
        """`sealing`: nothing of the object reaches the disk as it is."""
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
        fcntl.flock(self._file, fcntl.LOCK_EX)  # as long as it is held, sweep() leaves it alone
        self._sealing = sealing
        self._sealed = sealing is not None
        if sealing:
            self._append(sealing.begin)

    @property
    def key(self) -> str:
        return "/".join(self._parts)

    @property
    def md5(self) -> str | None:
        """Of what was written so far; None once a piece was taken."""
        return self._md5.hexdigest() if self._whole_md5 else None

    @property
    def crc32c(self) -> str:
        """Of what was written so far."""
        return sums.spelt(self._crc32c)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        with self._lock:
            self._md5.update(data)
            self._crc32c = sums.extend(self._crc32c, data if isinstance(data, bytes) else memoryview(data))
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
        """All of an object whose file is sealed, as it is: it takes no key. commit() must be told the etag."""
        self.take(file, os.fstat(file).st_size, info.crc32c or sums.spelt(0))
        self.size, self._crc32c = info.size, sums.unspelt(info.crc32c or sums.spelt(0))
        self._sealed = True

    def take(self, file: int, size: int, crc32c: str, offset: int = 0) -> None:
        """Appends this much of an open file, whose crc32c is known, without the bytes passing through here."""
        left, at = size, offset
        while left:
            # In steps, so that abort() need not wait for all of it.
            with self._lock:
                try:
                    count = _copy(file, self._file, left, at)
                except OSError as error:
                    raise self._failed(error) from None
            if not count:
                raise WrongState(f"{self.key!r}: what was being copied has become shorter meanwhile")
            left, at = left - count, at + count
        self._whole_md5 = self._whole_md5 and not size
        self._crc32c = sums.joined(self._crc32c, sums.unspelt(crc32c), size)
        self.size += size

    def commit(self, etag: str = "", md5: str = "") -> Info:
        """In place, whole and on disk when this returns.

        `md5`: in hex, where it is known although pieces were taken. `etag`: instead of the md5. Raises AlreadyExists
        or WrongState if the object is not what was expected, Invalid if there is no place for it.
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
            if self._expect == "absent" and _is_there(above, name):
                raise AlreadyExists(f"{self.key!r} exists")
            make_directory(above, name, self._owner, mark=False)
        with self._reach(self._parts[:-1]) as here:
            keep_directory(here)
            return describe(self.key, here, os.fstat(here))

    def _finish(self, etag: str, md5: str) -> None:
        if self._sealing:
            self._append(self._sealing.finish())
        os.fchmod(self._file, 0o644)
        if not isinstance(self._owner, bool):
            os.fchown(self._file, *self._owner)
        # The kernel's own times are coarse: two writes in a row could have the same.
        now = time.time_ns()
        os.utime(self._file, ns=(now, now))
        status = os.fstat(self._file)
        known = md5 or self.md5
        fallback = hashlib.md5(f"{now}:{self._path.name}".encode(), usedforsecurity=False).hexdigest() + "-1"
        keep(
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
                except (FileNotFoundError, Missing):
                    # Its directory was empty, and went with the last object of another request.
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
            except Blocked as error:
                raise Invalid(
                    f"{self.key!r} cannot be written, as a part of it is an object itself: {error.message}",
                    field="key",
                ) from None
            yield here

    def _failed(self, error: OSError) -> Exception:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return Unavailable(f"{self.key!r} cannot be written: the disk of the buckets is full")
        if error.errno == errno.EOPNOTSUPP and self._sealed:
            return Misconfigured(
                f"{self.key!r} cannot be kept sealed: the file system of the buckets has no extended attributes"
            )
        if error.errno == errno.EXDEV:
            return Misconfigured(f"the bucket {self._bucket!r} lies on another file system than the others")
        return Misconfigured(f"{self.key!r} cannot be written: {error.strerror}")


def one_at_a_time(bucket: str, key: str) -> threading.Lock:
    """So that nothing comes between a look at what is there and the change."""
    return _LOCKS[hash((bucket, key)) % len(_LOCKS)]


def check_expected(here: int, name: str, key: str, expect: Expect) -> None:
    """Raises if what is there is not what it should be."""
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
    """Removes what was left behind by a service that was killed."""
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
            raise WrongState("what was being read has become shorter meanwhile")
        write(piece)
        at += len(piece)


def _is_there(above: int, name: str) -> bool:
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
    return Invalid(f"{key!r} cannot be an object: there are objects below {key + '/'!r}", field="key")


def _sync(here: int) -> None:
    directory = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=here)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
