"""Uploads in parts, on disk until they are completed, so that they outlive a restart of the service.

`<uploads>/s3-<id>/` holds `about`, and a file for each part with its number and sums in its name: it is renamed to
that when it is whole.
"""

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from turnout.doors.s3.errors import S3Error
from turnout.errors import Misconfigured, Unavailable
from turnout.storage import embedded_sums as sums

MOST_PARTS = 10_000

_LIFE = 7 * 86400
_ID = re.compile(r"[0-9a-f]{32}")
_PART = re.compile(r"(\d{5})-([0-9a-f]{32})-([0-9a-f]{8})")


class About(msgspec.Struct):
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
    def __init__(self, directory: Path, about: About) -> None:
        self.directory = directory
        self.about = about

    @property
    def id(self) -> str:
        return self.directory.name.removeprefix("s3-")

    def parts(self) -> list[Part]:
        """In their order. Of two with the same number, both until the older one is removed."""
        found: list[Part] = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self.directory) as entries:
            for entry in entries:
                match = _PART.fullmatch(entry.name)
                if match:
                    status = entry.stat()
                    crc32c = sums.spelt(int(match[3], 16))
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
        # Without `about` it is no upload any more, whatever becomes of the rest.
        (self.directory / "about").unlink(missing_ok=True)
        shutil.rmtree(self.directory, ignore_errors=True)


_committing = threading.Lock()


class NewPart:
    """A part on its way in. abort() may come from another thread."""

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
        return sums.spelt(self._crc32c)

    def write(self, data: bytes) -> None:
        with self._lock:
            self._md5.update(data)
            self._crc32c = sums.extend(self._crc32c, data)
            rest = memoryview(data)
            try:
                while rest:
                    rest = rest[os.write(self._file, rest) :]
            except OSError as error:
                raise Unavailable(f"part {self._number} cannot be kept: {error.strerror}") from None

    def commit(self) -> None:
        name = f"{self._number:05d}-{self.md5}-{self._crc32c:08x}"
        self._sync()
        try:
            # One at a time: of two that come at once, each would take the other for the older one.
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
        """A part that is in the list must be there even after the power has failed."""
        try:
            os.fsync(self._file)
        except OSError as error:
            raise Unavailable(f"part {self._number} cannot be kept: {error.strerror}") from None


def begin(uploads: Path, about: About) -> Upload:
    _forget_old(uploads)
    directory = uploads / f"s3-{secrets.token_hex(16)}"
    try:
        directory.mkdir(mode=0o700)
        new = directory / "new-about"
        new.write_bytes(msgspec.json.encode(about))
        new.rename(directory / "about")
    except OSError as error:
        raise Misconfigured(f"the upload cannot be kept: {error.strerror}") from None
    return Upload(directory, about)


def find(uploads: Path, upload_id: str, bucket: str, key: str, project: str) -> Upload:
    """Raises NoSuchUpload, for another's as well."""
    if not _ID.fullmatch(upload_id):
        raise no_upload()
    directory = uploads / f"s3-{upload_id}"
    about = _read(directory)
    if about is None or (about.bucket, about.key, about.project) != (bucket, key, project):
        raise no_upload()
    return Upload(directory, about)


def unfinished(uploads: Path, bucket: str, project: str) -> Iterator[Upload]:
    for directory in sorted(uploads.glob("s3-*")):
        about = _read(directory)
        if about and (about.bucket, about.project) == (bucket, project):
            yield Upload(directory, about)


def no_upload() -> S3Error:
    return S3Error("NoSuchUpload", "There is no such upload; it may have been completed or aborted.")


def _read(directory: Path) -> About | None:
    try:
        return msgspec.json.decode((directory / "about").read_bytes(), type=About)
    except (OSError, msgspec.DecodeError):
        return None


def _forget_old(uploads: Path) -> None:
    """Nobody comes back for what lay still for a week."""
    for directory in uploads.glob("s3-*"):
        with contextlib.suppress(OSError):
            if directory.stat().st_mtime < time.time() - _LIFE:
                shutil.rmtree(directory, ignore_errors=True)
