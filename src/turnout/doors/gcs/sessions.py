"""Resumable uploads. What has arrived lies on disk, so a session goes on after a restart of the service."""

import asyncio
import base64
import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import google_crc32c
import msgspec

from turnout.doors.gcs.errors import Gone
from turnout.errors import Invalid, NotFound
from turnout.storage.streams import PIECE, gathered

LONGEST_LIFE = 7 * 24 * 3600
"""As Google has it."""
_SWEEP_SECONDS = 3600


class Target(msgspec.Struct):
    """What the upload shall become."""

    project: str
    bucket: str
    key: str
    content_type: str
    metadata: dict[str, str]
    hashes: dict[str, str]
    """`crc32c` and `md5` as the client gave them, in base64."""
    expect: int | None
    """The generation that must be there: 0 for none at all, None for whatever."""
    base: str
    """The service as the client named it."""


class Session:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.target = msgspec.json.decode((directory / "target").read_bytes(), type=Target)
        self.turn = asyncio.Lock()
        """A client that lost its connection may come back while the end of what it sent is still being written."""
        self._sums = Sums()

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def size(self) -> int:
        return self.data.stat().st_size

    def safe_size(self) -> int:
        """On disk, so that whoever is told so need not keep it."""
        with open(self.data, "rb") as file:
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size

    def sums(self) -> "Sums":
        """Of what is there: reads what this process has not seen come."""
        with open(self.data, "rb") as file:
            file.seek(self._sums.size)
            while piece := file.read(PIECE):
                self._sums.add(piece)
        return self._sums

    def answer(self) -> dict | None:
        """What was answered when the upload was complete; the answer may have got lost on its way."""
        try:
            return json.loads((self.directory / "answer").read_bytes())
        except FileNotFoundError:
            return None

    def finish(self, answer: dict) -> None:
        draft = self.directory / "answer.new"
        draft.write_bytes(json.dumps(answer).encode())
        os.replace(draft, self.directory / "answer")
        os.truncate(self.data, 0)

    async def append(self, start: int, body: AsyncIterator[bytes], until: int | None) -> None:
        """What is there already is passed over. What came before the connection broke stays.

        Raises Invalid, with nothing of the excess kept, if more comes than up to `until`.
        """
        descriptor = await asyncio.to_thread(os.open, self.data, os.O_WRONLY)
        try:
            have = os.fstat(descriptor).st_size
            if start > have:
                raise Invalid(f"bytes {have} to {start} are missing: ask with Content-Range: bytes */*")
            async for piece in gathered(body):
                if until is not None and start + len(piece) > until:
                    raise Invalid(f"more came than Content-Range says, which ends at {until}")
                new = piece[max(0, have - start) :]
                if new:
                    await asyncio.to_thread(self._write, descriptor, new, have)
                    have += len(new)
                start += len(piece)
        finally:
            os.close(descriptor)

    def _write(self, descriptor: int, data: bytes, at: int) -> None:
        if self._sums.size == at:
            self._sums.add(data)
        view = memoryview(data)
        while view:
            written = os.pwrite(descriptor, view, at)
            view, at = view[written:], at + written


class Sums:
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


class Sessions:
    def __init__(self, uploads: Callable[[], Path]) -> None:
        """`uploads`: a directory on the buckets' file system, where what is complete can be taken from at no cost."""
        self._uploads = uploads
        self._open: dict[str, Session] = {}
        self._next_sweep = 0.0

    @property
    def _directory(self) -> Path:
        return self._uploads() / "gcs"

    def begin(self, target: Target) -> str:
        self._sweep()
        name = secrets.token_urlsafe(24)
        draft = self._directory / f".{name}"
        draft.mkdir(mode=0o700, parents=True)
        (draft / "target").write_bytes(msgspec.json.encode(target))
        (draft / "data").touch(mode=0o600)
        os.rename(draft, self._directory / name)
        return name

    def find(self, name: str) -> Session:
        """The id is the permission: who was not given it cannot guess it. Raises NotFound."""
        known = self._open.get(name)
        if known is not None and known.directory.exists():
            return known
        directory = self._directory / name
        if not re.fullmatch(r"[\w-]{32}", name) or not directory.is_dir():
            raise NotFound("there is no such upload session: begin the upload again")
        return self._open.setdefault(name, Session(directory))

    def drop(self, name: str) -> None:
        session = self.find(name)
        if session.answer() is not None:
            raise Gone("the upload is complete: there is nothing to give up")
        self._remove(session.directory)

    def _sweep(self) -> None:
        """What nobody has added to for a week. Now and then: there may be many."""
        if time.monotonic() < self._next_sweep:
            return
        self._next_sweep = time.monotonic() + _SWEEP_SECONDS
        for directory in self._directory.glob("*") if self._directory.is_dir() else ():
            try:
                old = time.time() - (directory / "data").stat().st_mtime > LONGEST_LIFE
            except OSError:
                old = time.time() - directory.stat().st_mtime > LONGEST_LIFE
            if old:
                self._remove(directory)

    def _remove(self, directory: Path) -> None:
        self._open.pop(directory.name, None)
        shutil.rmtree(directory, ignore_errors=True)
