"""The bytes of an object on their way into a bucket: a temporary file, with their checksums."""

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import threading
from pathlib import Path

from turnout.errors import Misconfigured, Unavailable, WrongState
from turnout.storage.embedded import checksums

_PIECE = 1 << 20
_NEW = "put-"


class Incoming:
    """abort() may be called from another thread during a write: it waits for the write."""

    def __init__(self, uploads: Path, key: str) -> None:
        self.key = key
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._whole_md5 = True
        self._crc32c = 0
        self.size = 0
        self._path = uploads / f"{_NEW}{secrets.token_hex(16)}"
        self._lock = threading.RLock()
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)  # sweep() skips files that are locked

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
            self._append(self._encode(data))
            self.size += len(data)

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

    def abort(self) -> None:
        """May be called at any time, also after commit()."""
        with self._lock:
            if self._file < 0:
                return
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
            os.close(self._file)
            self._file = -1

    def _encode(self, data: bytes | bytearray | memoryview) -> bytes | bytearray | memoryview:
        """What is stored for these bytes."""
        return data

    def _append(self, data: bytes | bytearray | memoryview) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._file, rest) :]
            except OSError as error:
                raise self._failed(error) from None

    def _failed(self, error: OSError) -> Exception:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return Unavailable(f"{self.key!r} cannot be written: the disk is full")
        return Misconfigured(f"{self.key!r} cannot be written: {error.strerror}")


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


def _copy(source: int, target: int, size: int, at: int) -> int:
    try:
        # 64 MB at a time: the call cannot be interrupted.
        return os.copy_file_range(source, target, min(size, 64 << 20), offset_src=at)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
    return os.write(target, os.pread(source, min(_PIECE, size), at))
