"""Copies one file or object. Retries after a broken connection, verifies the data, and leaves no partial copy."""

import base64
import contextlib
import fcntl
import mimetypes
import os
import re
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import google_crc32c

from turnout.cli.client import Document, Rejected
from turnout.cli.progress import Progress
from turnout.cli.storage import BucketClient, Url
from turnout.errors import TurnoutError

Location = Url | Path

PIECE = 1 << 20
CRC32C = "X-Turnout-Crc32c"

_DRAFT = re.compile(r"\.turnout-[0-9a-f]{16}\.part")
_FRESH = 60
"""Seconds in which a new draft may not have its lock yet."""


class Copy(NamedTuple):
    source: Location
    target: Location
    size: int


class CopyError(TurnoutError):
    """The copy differs from the original."""


class Transfer:
    def __init__(self, buckets: BucketClient, progress: Progress | None = None) -> None:
        self.buckets = buckets
        self.progress = progress or Progress(enabled=False)
        self._swept: set[Path] = set()

    def copy(self, copy: Copy) -> None:
        match copy.source, copy.target:
            case Path() as file, Url() as url:
                self._upload(file, url)
            case Url() as url, Path() as file:
                self._download(url, file)
            case Url() as url, Url() as to:
                query = {"url": str(to), "from": str(url)}
                self.buckets.retry(lambda: self.buckets.client.send("PUT", "object", query=query))
                self.progress.advance(copy.size)

    def _upload(self, file: Path, url: Url) -> None:
        with open(file, "rb", opener=_no_links) as source:
            expected, size = self._sum(source)
            kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
            headers = {CRC32C: expected, "Content-Length": str(size), "Content-Type": kind}

            def put() -> Document:
                return self._put(source, file, size, headers, url)

            stored = self.buckets.retry(put)
        if stored["size"] != size or stored["crc32c"] not in (None, expected):
            raise CopyError(f"{url} differs from {file}: copy it again")

    def _put(self, source: BinaryIO, file: Path, size: int, headers: dict[str, str], url: Url) -> Document:
        sent = 0

        def pieces() -> Iterator[bytes]:
            nonlocal sent
            source.seek(0)
            while sent < size:
                self.check_cancelled()
                piece = source.read(min(PIECE, size - sent))
                if not piece:
                    raise CopyError(f"{file} became shorter while it was copied")
                sent += len(piece)
                self.progress.advance(len(piece))
                yield piece

        client = self.buckets.client
        try:
            return client.send("PUT", "object", body=pieces(), headers=headers, query={"url": str(url)})
        except BaseException:
            self.progress.advance(-sent)
            client.close()  # the connection is in the middle of a request, so it cannot be reused
            raise

    def _sum(self, source: BinaryIO) -> tuple[str, int]:
        checksum, size = google_crc32c.Checksum(), 0
        while piece := source.read(PIECE):
            self.check_cancelled()
            checksum.update(piece)
            size += len(piece)
        return _in_base64(checksum), size

    def from_stdin(self, url: Url) -> None:
        checksum = google_crc32c.Checksum()

        def pieces() -> Iterator[bytes]:
            while piece := sys.stdin.buffer.read(PIECE):
                checksum.update(piece)
                yield piece

        headers = {"Transfer-Encoding": "chunked", "Content-Type": "application/octet-stream"}
        # A stream cannot be sent again: a broken connection ends the upload.
        client = self.buckets.client
        stored = client.send("PUT", "object", body=pieces(), headers=headers, query={"url": str(url)})
        if stored["crc32c"] not in (None, _in_base64(checksum)):
            raise CopyError(f"{url} differs from what was read from standard input: copy it again")

    def to_stdout(self, url: Url) -> None:
        _Download(self, url, sys.stdout.buffer).run(may_restart=False)
        sys.stdout.buffer.flush()

    def _download(self, url: Url, file: Path) -> None:
        if os.path.lexists(file):
            file = Path(os.path.realpath(file))
            if file.exists() and not file.is_file() and not file.is_dir():
                # A device or a pipe is written into, never replaced.
                with open(file, "wb") as out:
                    _Download(self, url, out).run(may_restart=False)
                return
        file.parent.mkdir(parents=True, exist_ok=True)
        self._sweep(file.parent)
        draft = file.with_name(f".turnout-{secrets.token_hex(8)}.part")
        try:
            with open(draft, "xb") as out:
                with contextlib.suppress(OSError):  # a file system without locks
                    fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _Download(self, url, out).run(may_restart=True)
            if file.is_dir():
                raise CopyError(f"{file} is a directory, so {url} cannot be copied there")
            os.replace(draft, file)
        finally:
            with contextlib.suppress(FileNotFoundError):
                draft.unlink()

    def _sweep(self, directory: Path) -> None:
        """Removes drafts of a `cp` that was killed. A running `cp` locks its drafts."""
        if directory in self._swept:
            return
        self._swept.add(directory)
        found: list[str] = []
        with contextlib.suppress(OSError):  # a directory that is writable but not readable
            found = [name for name in os.listdir(directory) if _DRAFT.fullmatch(name)]
        for draft in (directory / name for name in found):
            with contextlib.suppress(OSError), open(draft, "rb", opener=_no_links) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if time.time() - os.fstat(file.fileno()).st_mtime > _FRESH:
                    draft.unlink()

    def check_cancelled(self) -> None:
        if self.buckets.cancelled.is_set():
            raise CopyError("cancelled")


class _Download:
    """A download that continues after a broken connection, as long as the object is the same."""

    def __init__(self, transfer: Transfer, url: Url, out: BinaryIO) -> None:
        self._transfer = transfer
        self._url = url
        self._out = out
        self._have = 0
        self._sum = google_crc32c.Checksum()
        self._etag = ""

    def run(self, may_restart: bool) -> None:
        """`may_restart`: written data may be discarded if the object is replaced meanwhile."""
        while True:
            try:
                size, expected = self._transfer.buckets.retry(self._rest, lambda: self._have)
                break
            except Rejected as error:
                if error.code != "WrongState" or not may_restart:
                    raise
                self._restart()
        if self._have != size or expected not in (None, _in_base64(self._sum)):
            raise CopyError(f"the copy of {self._url} differs from the object: copy it again")

    def _rest(self) -> tuple[int, str | None]:
        """Downloads the rest. Returns the size and the crc32c of the whole object."""
        client = self._transfer.buckets.client
        headers = {"Range": f"bytes={self._have}-", "If-Match": self._etag} if self._have else {}
        response = client.open("object", headers=headers, url=str(self._url))
        self._etag = response.headers["ETag"]
        remaining = int(response.headers["Content-Length"])
        size, expected = self._have + remaining, response.headers[CRC32C]
        try:
            while remaining:
                self._transfer.check_cancelled()
                piece = client.piece(response, min(PIECE, remaining))
                self._keep(piece)
                remaining -= len(piece)
            response.read()
        except BaseException:
            client.close()
            raise
        return size, expected

    def _keep(self, piece: bytes) -> None:
        self._out.write(piece)
        self._sum.update(piece)
        self._have += len(piece)
        self._transfer.progress.advance(len(piece))

    def _restart(self) -> None:
        self._transfer.progress.advance(-self._have)
        self._out.seek(0)
        self._out.truncate()
        self._have, self._etag, self._sum = 0, "", google_crc32c.Checksum()


def _in_base64(checksum: google_crc32c.Checksum) -> str:
    return base64.b64encode(checksum.digest()).decode()


def _no_links(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
