"""Out: what changed below a directory becomes objects below a prefix."""

import asyncio
import itertools
import os
import re
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING

from turnout.errors import Invalid, NotFound, Unavailable
from turnout.runner.stage.again import Lasting, Patience
from turnout.runner.stage.crew import each, on_thread
from turnout.runner.stage.files import INCOMING
from turnout.runner.stage.memory import Memory, Moved
from turnout.runner.stage.orders import Item
from turnout.runner.stage.room import TRANSFERS, Room
from turnout.runner.stage.sums import CRC, bare, digest, file_digest
from turnout.runner.stage.tally import Tally
from turnout.runner.stage.walk import Seen, Tree

if TYPE_CHECKING:
    from turnout.storage.remote import Store

BIG = 8 << 20
"""From here on a file is uploaded in parts."""
PART = 8 << 20
_PARTS = 9000
"""Stores take 10 000."""
_AT_A_TIME = 3
"""Parts of one file."""
_UPLOADS = 2
"""In parts, of one item: others want to get through too."""
_BATCH = 500
_SETTLED = 1_000_000_000
_TRIES = 5
"""For a file that changes while it is read, when nobody should be writing any more."""
_NO_KEY = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]|(?:^|/)\.\.?(?:/|$)|//")


class Changed(Lasting):
    """While it was read."""


class Stopped(Lasting):
    """The order was cancelled."""


class Push:
    """One item of an order."""

    def __init__(
        self, item: Item, store: "Store", room: Room, patience: Patience, tally: Tally, final: bool
    ) -> None:
        self._item = item
        self._store = store
        self._room = room
        self._patience = patience
        self._tally = tally
        self._final = final
        self._url = item.called
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
        self._memory = Memory(self._item.state)
        try:
            source = self._one_file(self._single) if self._single else self._changed()
            await each(source, self._one, TRANSFERS)
        finally:
            self._memory.close()
            self._tree.close()

    async def _one_file(self, name: str) -> AsyncIterator[Seen]:
        try:
            fd = self._tree.open(name)
        except OSError:
            raise NotFound(f"{self._item.from_} is no file that could be uploaded to {self._url}") from None
        found = os.fstat(fd)
        os.close(fd)
        seen = Seen(name, found.st_size, found.st_mtime_ns)
        if self._is_new(seen):
            yield seen

    async def _changed(self) -> AsyncIterator[Seen]:
        files = (seen for seen in self._tree.files(self._tally.warn) if self._is_new(seen))
        while batch := await on_thread(lambda: list(itertools.islice(files, _BATCH))):
            for seen in batch:
                yield seen

    def _is_new(self, seen: Seen) -> bool:
        known = self._memory.get(seen.path)
        if known and (known.size, known.mtime) == (seen.size, seen.mtime):
            return False
        if _NO_KEY.search(seen.path):
            self._tally.warn(f"{seen.path!r} is left out: an object cannot have such a name")
            return False
        if not self._final and not self._item.growing and time.time_ns() - seen.mtime < _SETTLED:
            self._tally.waiting += 1
            return False
        self._tally.found(seen.size)
        return True

    async def _one(self, seen: Seen) -> None:
        key = self._key(seen.path)
        url = self._url.removesuffix(self._item.prefix) + key
        for last in range(1, _TRIES + 1):
            try:
                return await self._upload(seen, key, url)
            except FileNotFoundError:
                return self._tally.warn(f"{seen.path} went away before it could be uploaded")
            except PermissionError:
                return self._tally.warn(f"{seen.path} is left out: it may not be read")
            except Changed:
                if not self._final:
                    self._tally.waiting += 1
                    return None
                if last == _TRIES:
                    raise Unavailable(f"{url}: {seen.path} changes each time it is read") from None
        return None

    def _key(self, path: str) -> str:
        prefix = self._item.prefix
        if self._single and prefix and not prefix.endswith("/"):
            return prefix.strip("/")
        return f"{prefix.strip('/')}/{path}".lstrip("/")

    async def _upload(self, seen: Seen, key: str, url: str) -> None:
        fd = self._tree.open(seen.path)
        try:
            found = os.fstat(fd)
            now = Seen(seen.path, found.st_size, found.st_mtime_ns)
            if now.size > BIG:
                etag = await self._patience.insist(lambda: self._in_parts(fd, now, key), url)
            else:
                etag = await self._patience.insist(lambda: self._whole(fd, now, key), url)
        finally:
            os.close(fd)
        self._memory.add(Moved(now.path, now.size, now.mtime, etag))
        self._tally.finished()

    async def _whole(self, fd: int, seen: Seen, key: str) -> str:
        async with self._room.take(seen.size):
            data = await on_thread(self._read, fd, seen)
            result = await self._store.put_async(
                key, data, use_multipart=False, attributes={CRC: digest("crc32c", data)}
            )
        self._tally.moved(seen.size)
        return bare(result["e_tag"])

    def _read(self, fd: int, seen: Seen) -> bytes:
        data = self._bytes(fd, seen.size)
        self._check_unchanged(fd, seen)
        if len(data) != seen.size:
            raise Changed
        return data

    @staticmethod
    def _bytes(fd: int, size: int, start: int = 0) -> bytes:
        """As many bytes as are there; one read is nearly always enough."""
        data = os.pread(fd, size, start)
        while len(data) < size and (more := os.pread(fd, size - len(data), start + len(data))):
            data += more
        return data

    def _check_unchanged(self, fd: int, seen: Seen) -> None:
        found = os.fstat(fd)
        if self._item.growing and found.st_size >= seen.size:
            return
        if (found.st_size, found.st_mtime_ns) != (seen.size, seen.mtime):
            raise Changed

    async def _in_parts(self, fd: int, seen: Seen, key: str) -> str:
        """obstore aborts what it began when its source raises, but not when it is cancelled: so it never is."""
        part = max(PART, -(-seen.size // _PARTS))
        stop = asyncio.Event()
        async with self._uploads, self._room.uploads:
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

    async def _parts(self, fd: int, seen: Seen, part: int, stop: asyncio.Event) -> AsyncIterator[bytes]:
        at = 0
        while at < seen.size:
            data = await on_thread(self._bytes, fd, min(part, seen.size - at), at)
            if stop.is_set():
                raise Stopped
            if not data:
                raise Changed
            yield data
            at += len(data)
            self._tally.moved(len(data))
        self._check_unchanged(fd, seen)
