"""Multipart uploads, stored on disk until they are complete, so that they survive a restart of the service.

`<uploads>/s3-<id>/` holds `about`, and a file for each part, which gets its number and checksums as its name when it is
complete.
"""

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from turnout.errors import Misconfigured, Unavailable
from turnout.gateways.s3.errors import S3Error
from turnout.storage.embedded import checksums

MAX_PARTS = 10_000

_ID = re.compile(r"[0-9a-f]{32}")
_PART = re.compile(r"(\d{5})-([0-9a-f]{32})-([0-9a-f]{8})")


class UploadInfo(msgspec.Struct):
    bucket: str
    key: str
    project: str
    content_type: str
    metadata: dict[str, str]
    made: int


class Part(NamedTuple):
    number: int
    md5: str
    crc32c: str
    size: int
    modified: int
    path: Path


class Upload:
    def __init__(self, directory: Path, info: UploadInfo) -> None:
        self.directory = directory
        self.info = info

    @property
    def id(self) -> str:
        return self.directory.name.removeprefix("s3-")

    def parts(self) -> list[Part]:
        """Sorted by number. Two parts may have the same number until the older one is removed."""
        found: list[Part] = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self.directory) as entries:
            for entry in entries:
                match = _PART.fullmatch(entry.name)
                if match:
                    status = entry.stat()
                    crc32c = checksums.encode(int(match[3], 16))
                    found.append(
                        Part(
                            int(match[1]),
                            match[2],
                            crc32c,
                            status.st_size,
                            status.st_mtime_ns,
                            Path(entry.path),
                        )
                    )
        return sorted(found, key=lambda part: (part.number, part.modified))

    def remove(self) -> None:
        # A directory without `about` is not an upload, even if the rest of it cannot be removed.
        (self.directory / "about").unlink(missing_ok=True)
        shutil.rmtree(self.directory, ignore_errors=True)


_committing = threading.Lock()


class NewPart:
    """Writes a part. abort() may be called from another thread."""

    def __init__(self, upload: Upload, number: int) -> None:
        self._directory = upload.directory
        self._number = number
        self._lock = threading.Lock()
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._crc32c = 0
        self._path = self._directory / f"new-{secrets.token_hex(8)}"
        try:
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            raise no_upload() from None

    @property
    def md5(self) -> str:
        return self._md5.hexdigest()

    @property
    def crc32c(self) -> str:
        return checksums.encode(self._crc32c)

    def write(self, data: bytes) -> None:
        with self._lock:
            self._md5.update(data)
            self._crc32c = checksums.extend(self._crc32c, data)
            rest = memoryview(data)
            try:
                while rest:
                    rest = rest[os.write(self._file, rest) :]
            except OSError as error:
                raise Unavailable(f"part {self._number} cannot be stored: {error.strerror}") from None

    def commit(self) -> None:
        name = f"{self._number:05d}-{self.md5}-{self._crc32c:08x}"
        self._sync()
        try:
            # One at a time: two parts of the same number would each remove the other as the older one.
            with _committing:
                os.rename(self._path, self._directory / name)
                for other in self._directory.glob(f"{self._number:05d}-*"):
                    if other.name != name:
                        other.unlink(missing_ok=True)
        except FileNotFoundError:
            raise no_upload() from None  # aborted meanwhile
        self.abort()

    def abort(self) -> None:
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1
                self._path.unlink(missing_ok=True)

    def _sync(self) -> None:
        """A part that is listed must survive a power failure."""
        try:
            os.fsync(self._file)
        except OSError as error:
            raise Unavailable(f"part {self._number} cannot be stored: {error.strerror}") from None


def begin(uploads: Path, info: UploadInfo) -> Upload:
    directory = uploads / f"s3-{secrets.token_hex(16)}"
    try:
        directory.mkdir(mode=0o700)
        new = directory / "new-about"
        new.write_bytes(msgspec.json.encode(info))
        new.rename(directory / "about")
    except OSError as error:
        raise Misconfigured(f"the upload cannot be stored: {error.strerror}") from None
    return Upload(directory, info)


def find(uploads: Path, upload_id: str, bucket: str, key: str, project: str) -> Upload:
    """Raises NoSuchUpload, also for another project's upload."""
    if not _ID.fullmatch(upload_id):
        raise no_upload()
    directory = uploads / f"s3-{upload_id}"
    info = _read(directory)
    if info is None or (info.bucket, info.key, info.project) != (bucket, key, project):
        raise no_upload()
    return Upload(directory, info)


def unfinished(uploads: Path, bucket: str, project: str) -> Iterator[Upload]:
    for directory in sorted(uploads.glob("s3-*")):
        info = _read(directory)
        if info and (info.bucket, info.project) == (bucket, project):
            yield Upload(directory, info)


def no_upload() -> S3Error:
    return S3Error("NoSuchUpload", "There is no such upload; it may have been completed or aborted.")


def _read(directory: Path) -> UploadInfo | None:
    try:
        return msgspec.json.decode((directory / "about").read_bytes(), type=UploadInfo)
    except (OSError, msgspec.DecodeError):
        return None
