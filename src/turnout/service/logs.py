"""The lines that a job printed: a page of them, or all as they come."""

import asyncio
import base64
import binascii
import heapq
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import NamedTuple

import msgspec

from turnout.errors import Invalid, NotFound
from turnout.job import Attempt, Job, ReplicaName
from turnout.service import merged
from turnout.service.jobs import Caller, Jobs, JobView
from turnout.service.lines import Stream
from turnout.service.merged import Numbered

_FOREVER = (1 << 63) - 1
_BATCH = 2000
_PIECE = 1 << 18
_LITTLE = 1 << 12
_JUST_NOW = 1_000_000_000
_PAGE_BYTES = 4 << 20
"""A page may end early, so that long lines do not fill the memory."""


class Line(NamedTuple):
    at: int
    attempt: int
    replica: ReplicaName
    stream: int
    """0 for stdout, 1 for stderr."""
    offset: int
    text: str


class LogPage(NamedTuple):
    lines: list[Line]
    cursor: str
    """Where the next page begins. It knows how far each stream was read, so no line is lost or given twice."""
    over: bool
    """There is nothing more at the moment."""


class Logs:
    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    async def query(
        self, view: JobView, *, start: int = 0, end: int = _FOREVER, limit: int, cursor: str = ""
    ) -> LogPage:
        """Lines with start <= time <= end, oldest first, replicas and streams interleaved by time."""
        offsets = _read_cursor(cursor, view.job.id)
        if self._are_small(view):
            # To hand it to a thread would take longer than to do it.
            return self._page(view, start, end, limit, offsets)
        return await asyncio.to_thread(self._page, view, start, end, limit, offsets)

    async def follow(self, caller: Caller, view: JobView, cursor: str = "") -> AsyncIterator[LogPage]:
        """Pages as they come, until the job has ended and all of it has been given."""
        job_id = view.job.id
        grown = asyncio.Event()

        async def watch_logs(job: Job) -> None:
            async for _ in self._jobs.follow(job):
                grown.set()

        with self._jobs.watch(job_id) as changed:
            watcher: asyncio.Task[None] | None = None
            watched: Attempt | None = None
            try:
                while not self._jobs.closing():
                    changed.clear()
                    grown.clear()
                    view = await self._jobs.by_id(caller, job_id)
                    if view.job.attempt and view.job.current != watched:
                        watcher = _replace(watcher, watch_logs(view.job))
                        watched = view.job.current
                    page = await self.query(view, limit=_BATCH, cursor=cursor)
                    cursor = page.cursor
                    if page.lines:
                        yield page
                    if not page.over:
                        continue
                    if not view.job.live:
                        return
                    await _first(changed, grown)
            finally:
                _replace(watcher, None)

    async def tail(self, view: JobView, replica: ReplicaName, most_bytes: int) -> tuple[bytes, int]:
        """The end of a replica's whole log, from a line's beginning on, and how large the whole is.

        Both streams of all attempts are in it, in the order of time. Raises NotFound.
        """

        def read() -> tuple[bytes, int]:
            attempts = self._attempts(view, replica)
            return merged.tail(attempts, most_bytes), merged.size(attempts)

        return await asyncio.to_thread(read)

    async def numbered(
        self, view: JobView, replica: ReplicaName, first_line: int | None, count: int, descending: bool
    ) -> Numbered:
        """`count` lines of the same log from number `first_line` on; descending: up to it.

        None means the first, or descending the last. There may be fewer, if they are very long. They are always in
        the order of time. Raises NotFound.
        """

        def read() -> Numbered:
            attempts = self._attempts(view, replica)
            return merged.numbered(attempts, first_line, count, descending, _PAGE_BYTES)

        return await asyncio.to_thread(read)

    async def whole(self, view: JobView, replica: ReplicaName) -> AsyncIterator[bytes]:
        """The same log from beginning to end, in pieces. Raises NotFound."""
        found = merged.pieces(await asyncio.to_thread(self._attempts, view, replica), _PIECE)
        while piece := await asyncio.to_thread(next, found, b""):
            yield piece

    def _attempts(self, view: JobView, name: ReplicaName) -> list[list[Stream]]:
        replica = next((one for one in view.replicas if one.name == name), None)
        if replica is None:
            there = ", ".join(str(one.name) for one in view.replicas) or "none yet"
            raise NotFound(f"the job has no replica {name}; there are {there}")
        return [
            [
                Stream(
                    self._jobs.log(view.job, attempt, name), stream, _ended(view.job, attempt, replica.ended)
                )
                for stream in (0, 1)
            ]
            for attempt in range(1, view.job.attempt + 1)
        ]

    def _are_small(self, view: JobView) -> bool:
        """A first attempt of one replica that has ended just now and said little, so that it is still in memory."""
        job = view.job
        if (
            job.attempt != 1
            or len(view.replicas) != 1
            or job.live
            or time.time_ns() - (job.ended or 0) > _JUST_NOW
        ):
            return False
        log = self._jobs.log(job, 1, view.replicas[0].name)
        return log.size(0) + log.size(1) <= _LITTLE

    def _page(self, view: JobView, start: int, end: int, limit: int, offsets: dict[str, int]) -> LogPage:
        streams = [
            self._lines(view, attempt, index, stream, start, offsets)
            for attempt in range(1, view.job.attempt + 1)
            for index in range(len(view.replicas))
            for stream in (0, 1)
        ]
        lines: list[Line] = []
        over, size = True, 0
        for line, key, line_end in heapq.merge(*streams, key=lambda found: found[0]):
            if line.at > end:
                break
            if len(lines) == limit or size > _PAGE_BYTES:
                over = False
                break
            lines.append(line)
            size += len(line.text)
            offsets[key] = line_end
        return LogPage(lines, _write_cursor(view.job.id, offsets), over)

    def _lines(
        self, view: JobView, attempt: int, index: int, stream: int, start: int, offsets: dict[str, int]
    ) -> Iterator[tuple[Line, str, int]]:
        replica = view.replicas[index]
        ended = _ended(view.job, attempt, replica.ended)
        log = self._jobs.log(view.job, attempt, replica.name)
        key = f"{attempt}.{index}.{stream}"
        for raw in Stream(log, stream, ended).lines(offsets.get(key, 0), start):
            text = raw.text.removesuffix(b"\r").decode("utf-8", "replace")
            yield Line(raw.at, attempt, replica.name, stream, raw.start, text), key, raw.end


def _ended(job: Job, attempt: int, ended: int | None) -> int | None:
    """The replicas of an earlier attempt have all ended, at a time that its marks tell well enough."""
    return ended if attempt == job.attempt else 0


def _replace(
    task: asyncio.Task[None] | None, then: Coroutine[None, None, None] | None
) -> asyncio.Task[None] | None:
    if task:
        task.cancel()
    return asyncio.create_task(then) if then else None


async def _first(*events: asyncio.Event) -> None:
    """Wait until one of them is set."""
    tasks = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _write_cursor(job_id: int, offsets: dict[str, int]) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode((job_id, offsets))).rstrip(b"=").decode()


def _read_cursor(text: str, job_id: int) -> dict[str, int]:
    if not text:
        return {}
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        owner, offsets = msgspec.msgpack.decode(raw, type=tuple[int, dict[str, int]])
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise Invalid("the cursor is not one that this service gave", field="cursor") from None
    if owner != job_id or any(offset < 0 for offset in offsets.values()):
        raise Invalid("the cursor belongs to another job", field="cursor")
    return offsets
