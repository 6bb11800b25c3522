"""Uploads changed files of a directory as objects below a prefix."""

import asyncio
import itertools
import os
import re
import time
from collections.abc import AsyncIterator
from contextlib import suppress

from turnout.errors import Invalid, NotFound, Unavailable
from turnout.runner.stager.budget import TRANSFERS
from turnout.runner.stager.checksums import CRC, bare, digest, file_digest
from turnout.runner.stager.context import TransferContext
from turnout.runner.stager.file_tree import FoundFile, Tree
from turnout.runner.stager.files import INCOMING
from turnout.runner.stager.messages import TransferItem
from turnout.runner.stager.retry import Permanent
from turnout.runner.stager.transfer_log import TransferLog, TransferredFile
from turnout.runner.stager.workers import for_each, on_thread

BIG = 8 << 20
"""Files larger than this are uploaded in parts."""
PART = 8 << 20
_PARTS = 9000
"""Stores accept 10 000."""
_AT_A_TIME = 3
"""Concurrent parts of one file."""
_UPLOADS = 2
"""Concurrent multipart uploads of one transfer, so that others can proceed too."""
_BATCH = 500
_SETTLED = 1_000_000_000
_TRIES = 5
"""Attempts for a file that changes while it is read although the order is final."""
_NO_KEY = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]|(?:^|/)\.\.?(?:/|$)|//")


class Changed(Permanent):
    """The file changed while it was read."""


class Stopped(Permanent):
    """The order was cancelled."""


class Push:
    """One outbound transfer of an order."""

    def __init__(self, item: TransferItem, context: TransferContext, final: bool) -> None:
        self._item = item
        self._store, self._budget, self._retries, self._progress = context
        self._final = final
        self._url = item.display_url
        self._uploads = asyncio.Semaphore(_UPLOADS)
        self._directory, self._single = item.from_, ""
        if not os.path.isdir(item.from_):
            self._directory, self._single = os.path.split(item.from_)

    async def run(self) -> None:
        """Raises TurnoutError."""
        try:
            self._tree = Tree(self._directory, INCOMING)
        except OSError as error:
            raise Invalid(f"{self._item.from_} cannot be read: {error.strerror}") from None
        self._transfer_log = TransferLog(self._item.state)
        try:
            source = self._single_file(self._single) if self._single else self._changed()
            await for_each(source, self._push_file, TRANSFERS)
        finally:
            self._transfer_log.close()
            self._tree.close()

    async def _single_file(self, name: str) -> AsyncIterator[FoundFile]:
        try:
            fd = self._tree.open(name)
        except OSError:
            raise NotFound(
                f"{self._item.from_} is not a regular file and cannot be uploaded to {self._url}"
            ) from None
        found = os.fstat(fd)
        os.close(fd)
        seen = FoundFile(name, found.st_size, found.st_mtime_ns)
        if self._is_new(seen):
            yield seen

    async def _changed(self) -> AsyncIterator[FoundFile]:
        files = (seen for seen in self._tree.files(self._progress.warn) if self._is_new(seen))
        while batch := await on_thread(lambda: list(itertools.islice(files, _BATCH))):
            for seen in batch:
                yield seen

    def _is_new(self, seen: FoundFile) -> bool:
        known = self._transfer_log.get(seen.path)
        if known and (known.size, known.mtime) == (seen.size, seen.mtime):
            return False
        if _NO_KEY.search(seen.path):
            self._progress.warn(f"{seen.path!r} is skipped: an object cannot have this name")
            return False
        if not self._final and not self._item.growing and time.time_ns() - seen.mtime < _SETTLED:
            self._progress.waiting += 1
            return False
        self._progress.found(seen.size)
        return True

    async def _push_file(self, seen: FoundFile) -> None:
        key = self._key(seen.path)
        url = self._url.removesuffix(self._item.prefix) + key
        for attempt in range(1, _TRIES + 1):
            try:
                return await self._upload(seen, key, url)
            except FileNotFoundError:
                return self._progress.warn(f"{seen.path} was removed before it could be uploaded")
            except PermissionError:
                return self._progress.warn(f"{seen.path} is skipped: permission denied")
            except Changed:
                if not self._final:
                    self._progress.waiting += 1
                    return None
                if attempt == _TRIES:
                    raise Unavailable(
                        f"{url}: {seen.path} changed every time it was read, {_TRIES} times"
                    ) from None
        return None

    def _key(self, path: str) -> str:
        prefix = self._item.prefix
        if self._single and prefix and not prefix.endswith("/"):
            return prefix.strip("/")
        return f"{prefix.strip('/')}/{path}".lstrip("/")

    async def _upload(self, seen: FoundFile, key: str, url: str) -> None:
        fd = self._tree.open(seen.path)
        try:
            found = os.fstat(fd)
            now = FoundFile(seen.path, found.st_size, found.st_mtime_ns)
            if now.size > BIG:
                etag = await self._retries.run(lambda: self._in_parts(fd, now, key), url)
            else:
                etag = await self._retries.run(lambda: self._whole_object(fd, now, key), url)
        finally:
            os.close(fd)
        self._transfer_log.add(TransferredFile(now.path, now.size, now.mtime, etag))
        self._progress.finished()

    async def _whole_object(self, fd: int, seen: FoundFile, key: str) -> str:
        async with self._budget.reserve(seen.size):
            data = await on_thread(self._read, fd, seen)
            result = await self._store.put_async(
                key, data, use_multipart=False, attributes={CRC: digest("crc32c", data)}
            )
        self._progress.moved(seen.size)
        return bare(result["e_tag"])

    def _read(self, fd: int, seen: FoundFile) -> bytes:
        data = self._bytes(fd, seen.size)
        self._check_unchanged(fd, seen)
        if len(data) != seen.size:
            raise Changed
        return data

    @staticmethod
    def _bytes(fd: int, size: int, start: int = 0) -> bytes:
        """Up to `size` bytes; one read is nearly always enough."""
        data = os.pread(fd, size, start)
        while len(data) < size and (more := os.pread(fd, size - len(data), start + len(data))):
            data += more
        return data

    def _check_unchanged(self, fd: int, seen: FoundFile) -> None:
        found = os.fstat(fd)
        if self._item.growing and found.st_size >= seen.size:
            return
        if (found.st_size, found.st_mtime_ns) != (seen.size, seen.mtime):
            raise Changed

    async def _in_parts(self, fd: int, seen: FoundFile, key: str) -> str:
        """obstore aborts a multipart upload if its source raises, but not on cancellation, so it is never cancelled."""
        part = max(PART, -(-seen.size // _PARTS))
        stop = asyncio.Event()
        async with self._uploads, self._budget.uploads:
            checksum = await on_thread(file_digest, "crc32c", fd, seen.size)
            upload = asyncio.ensure_future(
                self._store.put_async(
                    key,
                    self._parts(fd, seen, part, stop),
                    use_multipart=True,
                    chunk_size=part,
                    max_concurrency=max(1, _AT_A_TIME * PART // part),
                    attributes={CRC: checksum},
                )
            )
            try:
                result = await asyncio.shield(upload)
            except asyncio.CancelledError:
                stop.set()
                with suppress(Exception):
                    await upload
                raise
        return bare(result["e_tag"])

    async def _parts(self, fd: int, seen: FoundFile, part: int, stop: asyncio.Event) -> AsyncIterator[bytes]:
        at = 0
        while at < seen.size:
            data = await on_thread(self._bytes, fd, min(part, seen.size - at), at)
            if stop.is_set():
                raise Stopped
            if not data:
                raise Changed
            yield data
            at += len(data)
            self._progress.moved(len(data))
        if stop.is_set():
            raise Stopped
        self._check_unchanged(fd, seen)
