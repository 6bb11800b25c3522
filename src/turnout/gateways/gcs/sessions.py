"""Resumable uploads. Received bytes are on disk, so sessions survive a restart of the service."""

import asyncio
import base64
import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import google_crc32c
import msgspec

from turnout import pools
from turnout.errors import Invalid, NotFound, TooLarge
from turnout.gateways.gcs.errors import Gone
from turnout.storage.streams import PIECE, coalesced

COMPLETE_SECONDS = 3600.0
"""How long a completed session is kept, so that a client can request a lost response again."""
_GONE = ".gone-"
_MIN_CHECK = 64


class ObjectRef(NamedTuple):
    bucket: str
    key: str
    project: str


class UploadTarget(msgspec.Struct):
    """The object that the upload will become."""

    project: str
    bucket: str
    key: str
    content_type: str
    metadata: dict[str, str]
    hashes: dict[str, str]
    """`crc32c` and `md5` as the client gave them, in base64."""
    expect: int | None
    """The generation that must exist: 0 if there must be no object, None for any."""
    base: str
    """The URL of the service as the client used it."""
    made_by: str = ""
    """The id of the key that began it."""
    sizes: tuple[int, int] | None = None
    """The minimum and maximum size that the signer of its URL allows."""


class Session:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.target = msgspec.json.decode((directory / "target").read_bytes(), type=UploadTarget)
        self.lock = asyncio.Lock()
        """A client that lost its connection may return while its last bytes are still being written."""
        self._checksums = Checksums()

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def size(self) -> int:
        return self.data.stat().st_size

    def safe_size(self) -> int:
        """Syncs first, so that the client need not keep the bytes up to this size."""
        with open(self.data, "rb") as file:
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size

    def checksums(self) -> "Checksums":
        """The checksums of the received bytes. Reads those that an earlier process received."""
        with open(self.data, "rb") as file:
            file.seek(self._checksums.size)
            while piece := file.read(PIECE):
                self._checksums.add(piece)
        return self._checksums

    def response(self) -> dict | None:
        """The response of a completed upload, which may not have reached the client."""
        try:
            return json.loads((self.directory / "answer").read_bytes())
        except FileNotFoundError:
            return None

    def complete(self, response: dict) -> None:
        draft = self.directory / "answer.new"
        draft.write_bytes(json.dumps(response).encode())
        os.replace(draft, self.directory / "answer")
        os.truncate(self.data, 0)

    async def append(
        self, start: int, body: AsyncIterator[bytes], until: int | None, most: int | None = None
    ) -> None:
        """Skips bytes that are already there. Keeps the bytes that came before a broken connection.

        Raises Invalid for bytes beyond `until`, and TooLarge for bytes beyond `most`; those bytes are not kept.
        """
        descriptor = await pools.disk.run(self.target.project, os.open, self.data, os.O_WRONLY)
        try:
            have = os.fstat(descriptor).st_size
            if start > have:
                raise Invalid(
                    f"bytes {have} to {start} are missing: query the state with Content-Range: bytes */*"
                )
            async for piece in coalesced(body):
                if until is not None and start + len(piece) > until:
                    raise Invalid(f"the body is longer than Content-Range says, which ends at {until}")
                if most is not None and start + len(piece) > most:
                    raise TooLarge(f"{self.target.key!r} may have {most} bytes")
                new = piece[max(0, have - start) :]
                if new:
                    await pools.disk.run(self.target.project, self._write, descriptor, new, have)
                    have += len(new)
                start += len(piece)
        finally:
            os.close(descriptor)

    def _write(self, descriptor: int, data: bytes, at: int) -> None:
        if self._checksums.size == at:
            self._checksums.add(data)
        view = memoryview(data)
        while view:
            written = os.pwrite(descriptor, view, at)
            view, at = view[written:], at + written


class Checksums:
    def __init__(self) -> None:
        self.size = 0
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._crc32c = google_crc32c.Checksum()

    def add(self, data: bytes) -> None:
        self.size += len(data)
        self._md5.update(data)
        self._crc32c.update(data)

    @property
    def md5(self) -> str:
        return self._md5.hexdigest()

    @property
    def crc32c(self) -> str:
        return base64.b64encode(self._crc32c.digest()).decode()


class UploadSessions:
    def __init__(self, uploads: Callable[[], Path]) -> None:
        """`uploads`: a directory on the buckets' file system, so that complete uploads are moved without a copy."""
        self._uploads = uploads
        self._open: dict[str, Session] = {}
        self._check_at = _MIN_CHECK
        """When this many sessions are open, those that the sweep has removed are dropped from memory."""

    @property
    def _directory(self) -> Path:
        return self._uploads() / "gcs"

    def begin(self, target: UploadTarget) -> str:
        name = secrets.token_urlsafe(24)
        draft = self._directory / f".{name}"
        draft.mkdir(mode=0o700, parents=True)
        (draft / "target").write_bytes(msgspec.json.encode(target))
        (draft / "data").touch(mode=0o600)
        os.rename(draft, self._directory / name)
        return name

    def find(self, name: str) -> Session:
        """The id alone gives access, because it cannot be guessed. Raises NotFound."""
        known = self._open.get(name)
        if known is not None and known.directory.exists():
            return known
        directory = self._directory / name
        if not re.fullmatch(r"[\w-]{32}", name) or not directory.is_dir():
            raise NotFound("there is no such upload session: begin the upload again")
        self._drop_cleared()
        return self._open.setdefault(name, Session(directory))

    def _drop_cleared(self) -> None:
        if len(self._open) < self._check_at:
            return
        for name, session in list(self._open.items()):
            if not session.directory.exists():
                self._open.pop(name, None)
        self._check_at = max(_MIN_CHECK, 2 * len(self._open))

    def cancel(self, name: str) -> None:
        session = self.find(name)
        if session.response() is not None:
            raise Gone("the upload is complete and cannot be cancelled")
        self.release(session)
        _remove(session.directory)

    def release(self, session: Session) -> None:
        """Frees the memory of a completed session. All its state is on disk."""
        self._open.pop(session.directory.name, None)


def clear(uploads: Callable[[], Path], before: float, dry: bool) -> tuple[int, int]:
    """Removes sessions without new bytes since `before`, and completed ones. Returns their number and bytes.

    `before`: in seconds since 1970; 0: only completed ones. `dry`: only counts.
    """
    count = size = 0
    directory = uploads() / "gcs"
    for name in os.listdir(directory) if directory.is_dir() else ():
        try:
            data, expired = _expired(directory / name, before)
        except OSError:
            continue  # it was cancelled at this moment
        if expired:
            count, size = count + 1, size + data
            if not dry:
                _remove(directory / name)
    return count, size


def _expired(directory: Path, before: float) -> tuple[int, bool]:
    """The size of a session, and whether it can be removed."""
    found = {entry.name: entry.stat() for entry in os.scandir(directory)}
    size = sum(status.st_size for status in found.values())
    if directory.name.startswith(_GONE):
        return size, True
    if response := found.get("answer"):
        return size, response.st_mtime < time.time() - COMPLETE_SECONDS
    return size, found.get("data", directory.stat()).st_mtime < before


def _remove(directory: Path) -> None:
    """Renames it first, so that a client that continues finds the whole session or none."""
    gone = directory
    if not directory.name.startswith(_GONE):
        gone = directory.with_name(_GONE + directory.name)
        with contextlib.suppress(OSError):
            os.rename(directory, gone)
    shutil.rmtree(gone, ignore_errors=True)
