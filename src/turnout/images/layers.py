"""The unpacked layers: a few processes without rights write them, and this module tells the processes what to do."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from turnout import chaos, pools
from turnout.child_processes.bootstrap import Identity
from turnout.child_processes.child import Child, ChildDied, ChildProgram
from turnout.errors import NotStored, TurnoutError
from turnout.images.index import LayerRecord
from turnout.images.layer import LayerLimits
from turnout.images.space import DiskFull
from turnout.images.tar import BadLayer
from turnout.images.unpacker import Unpack, Unpacked, Unpacking, layer_name

_PROGRAM = ChildProgram("unpacker of images", "turnout.images.unpacker")
_MEMORY = 1 << 30
_IDLE_SECONDS = 30
_MOST_PROCESSES = 4
_log = logging.getLogger(__name__)


class Layers:
    def __init__(self, directory: Path, identity: Identity | None) -> None:
        """`identity`: whom the layers belong to; None: the service's user."""
        self._directory = directory
        self._identity = identity
        setup = Unpacking(directory=str(directory), memory=_MEMORY, kill_at=chaos.kill_at)
        count = max(1, min(_MOST_PROCESSES, (os.cpu_count() or 1) // 2))
        self._processes = [
            Child(_PROGRAM, Unpacked, setup, identity=identity, idle=_IDLE_SECONDS) for _ in range(count)
        ]
        self._free: asyncio.LifoQueue[Child[Unpacked]] = asyncio.LifoQueue()
        for process in self._processes:
            self._free.put_nowait(process)
        self._running: dict[str, asyncio.Task[Unpacked]] = {}
        self._removals: dict[str, asyncio.Task[None]] = {}
        self._cleaning: asyncio.Task[None] | None = None

    async def open(self, known: list[str]) -> list[str]:
        """Returns those that exist, and begins to delete all others: what was left by a service that was killed."""
        found = set(await pools.disk.run(pools.OWN, self._prepare))
        names = {layer_name(diff_id): diff_id for diff_id in known}
        if left := sorted(found - names.keys()):
            self._cleaning = asyncio.ensure_future(self._clean(left))
        return [diff_id for name, diff_id in names.items() if name in found]

    async def close(self) -> None:
        if self._cleaning:
            self._cleaning.cancel()
        for process in self._processes:
            await process.close()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    def path(self, diff_id: str) -> Path:
        return self._directory / layer_name(diff_id)

    async def unpack(self, blob: Path, digest: str, diff_id: str, limits: LayerLimits) -> LayerRecord:
        """Once for each layer at a time, also if the caller is cancelled. Raises BadLayer and NotStored."""
        if self._cleaning:
            await asyncio.wait([self._cleaning])
        while removal := self._removals.get(diff_id):
            await asyncio.wait([removal])
        if diff_id not in self._running:
            wanted = Unpack(str(blob), digest, diff_id, *limits)
            task = asyncio.ensure_future(self._request({"unpack": wanted}))
            self._running[diff_id] = task
            task.add_done_callback(lambda task: self._ended(diff_id, task))
        done = await asyncio.shield(self._running[diff_id])
        return LayerRecord(done.bytes, done.files, done.opaque, done.skipped, blobs=[digest])

    async def check(self, blob: Path, digest: str, diff_id: str, limits: LayerLimits) -> None:
        """Raises BadLayer if the blob is not this layer."""
        await self._request({"unpack": Unpack(str(blob), digest, diff_id, *limits, only_check=True)})

    async def remove(self, diff_ids: list[str], first: Callable[[], Awaitable[None]]) -> None:
        """`first` stores that they are gone. Until both are done, none of them is unpacked again.

        Returns when no other removal runs either.
        """
        removal = asyncio.ensure_future(self._remove(diff_ids, first))
        self._removals |= dict.fromkeys(diff_ids, removal)
        await asyncio.shield(removal)
        if others := set(self._removals.values()):
            await asyncio.wait(others)

    async def _remove(self, diff_ids: list[str], first: Callable[[], Awaitable[None]]) -> None:
        try:
            await first()
            chaos.point("image-collected")
            if diff_ids:
                await self._request({"remove": diff_ids})
        finally:
            for diff_id in diff_ids:
                del self._removals[diff_id]

    def _ended(self, diff_id: str, task: asyncio.Task[Unpacked]) -> None:
        del self._running[diff_id]
        if not task.cancelled():
            task.exception()  # those who wait have it, if there are any left

    async def _clean(self, left: list[str]) -> None:
        try:
            await self._request({"clean": left})
        except TurnoutError as error:
            _log.error("unfinished layers in %s could not be deleted: %s", self._directory, error)

    def _prepare(self) -> list[str]:
        self._directory.mkdir(mode=0o700, exist_ok=True)
        if self._identity:
            os.chown(self._directory, self._identity.uid, self._identity.gid)
        self._directory.chmod(0o700)
        return os.listdir(self._directory)

    async def _request(self, body: dict[str, object]) -> Unpacked:
        process = await self._free.get()
        try:
            reply = await process.request(body)
        except ChildDied as error:
            raise NotStored(f"the image could not be unpacked: {error}") from None
        finally:
            self._free.put_nowait(process)
        if reply.full:
            raise DiskFull(f"the disk of {self._directory.parent} is full: the image could not be unpacked")
        if reply.error:
            raise BadLayer(reply.error)
        return reply
