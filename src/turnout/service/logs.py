"""The log of a job: pages of lines, following, and the whole log of a replica."""

import asyncio
import base64
import binascii
import heapq
import itertools
import time
from collections.abc import AsyncIterator, Coroutine, Hashable, Iterator
from typing import NamedTuple

import msgspec

from turnout import pools
from turnout.errors import Invalid, NotFound, TimedOut
from turnout.job import Attempt, Job, ReplicaLog, ReplicaName
from turnout.service import merged
from turnout.service.jobs import Caller, Jobs, JobView
from turnout.service.line_counts import Counts
from turnout.service.lines import RawLine, Stream
from turnout.service.log_extent import Extent, measure
from turnout.service.log_search import Wanted, skip
from turnout.service.merged import Numbered
from turnout.waiting import wait_any

_FOREVER = (1 << 63) - 1
_BATCH = 2000
_PIECE = 1 << 18
_COUNT_SECONDS = 20.0
_CACHED_COUNTS = 512
"""How many streams' line counts are cached."""
_SMALL_BYTES = 1 << 12
_RECENT_NS = 1_000_000_000
_PAGE_BYTES = 4 << 20
"""A page ends at this size, so that long lines do not fill the memory."""
_SEARCH_BYTES = 1 << 16
"""What is searched line by line, before the next look at how much can be skipped."""
_SKIPPED_BYTES = 1 << 24
_SEARCH_SECONDS = 2.0
STREAMED_BYTES = 64 << 10
"""The size of a page in a stream of pages: one such page waits for each slow reader."""


class Line(NamedTuple):
    at: int
    attempt: int
    replica: ReplicaName
    stream: int
    """0 for stdout, 1 for stderr."""
    offset: int
    text: str


class LogPart(NamedTuple):
    """The part of a log that is asked for. None: all."""

    replica: ReplicaName | None = None
    attempt: int | None = None


WHOLE = LogPart()


class LogPage(NamedTuple):
    lines: list[Line]
    cursor: str
    """Where the next page begins. It has the offset of each stream, so no line is lost or repeated."""
    over: bool
    """Whether there are no more lines at the moment."""


class Logs:
    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._counts: dict[Hashable, Counts] = {}

    async def query(
        self,
        view: JobView,
        *,
        start: int = 0,
        end: int = _FOREVER,
        limit: int,
        cursor: str = "",
        most_bytes: int = _PAGE_BYTES,
        part: LogPart = WHOLE,
    ) -> LogPage:
        """Lines with start <= time <= end, oldest first, replicas and streams interleaved by time.

        A page is limited in size, so it may have fewer than `limit` lines although there are more. A cursor
        continues the same `part`.
        """
        offsets = _read_cursor(cursor, view.job.id)
        if self._is_small(view):
            # Passing it to a thread would take longer than reading it here.
            return self._page(view, start, end, limit, offsets, most_bytes, part)
        return await pools.logs.run(
            view.job.project, self._page, view, start, end, limit, offsets, most_bytes, part
        )

    async def query_back(
        self,
        view: JobView,
        *,
        start: int = 0,
        end: int = _FOREVER,
        limit: int,
        cursor: str = "",
        part: LogPart = WHOLE,
    ) -> LogPage:
        """The same in reverse order. The cursor must be from this method."""
        offsets = _read_cursor(cursor, view.job.id)
        return await pools.logs.run(view.job.project, self._page_back, view, start, end, limit, offsets, part)

    async def search(
        self,
        view: JobView,
        wanted: Wanted,
        *,
        start: int = 0,
        end: int = _FOREVER,
        limit: int,
        cursor: str = "",
        part: LogPart = WHOLE,
    ) -> LogPage:
        """The lines of `query` whose text matches.

        Searches for a limited time: the page of a long log may be empty although it is not the last.
        """
        offsets = _read_cursor(cursor, view.job.id)
        deadline = time.monotonic() + _SEARCH_SECONDS
        found: list[Line] = []
        while True:
            rest = limit - len(found)
            lines, over = await pools.logs.run(
                view.job.project, self._search_piece, view, start, end, rest, offsets, wanted, part
            )
            found += lines
            if over or len(found) == limit or time.monotonic() > deadline:
                return LogPage(found, _write_cursor(view.job.id, offsets), over)

    async def follow(
        self, caller: Caller, view: JobView, cursor: str = "", part: LogPart = WHOLE, start: int = 0
    ) -> AsyncIterator[LogPage]:
        """Yields pages from `start` as lines are printed, until the job has ended and all lines were returned."""
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
                    page = await self.query(
                        view, start=start, limit=_BATCH, cursor=cursor, most_bytes=STREAMED_BYTES, part=part
                    )
                    cursor = page.cursor
                    if page.lines:
                        yield page
                    if not page.over:
                        continue
                    if not view.job.live:
                        return
                    await wait_any(changed, grown)
            finally:
                _replace(watcher, None)

    async def extent(self, view: JobView, part: LogPart, at: int | None, position: int | None) -> Extent:
        """The size of the log, and a place in it: the bytes before a time, or the time of a byte, for a scroll bar."""
        return await pools.logs.run(view.job.project, self._extent, view, part, at, position)

    def _extent(self, view: JobView, part: LogPart, at: int | None, position: int | None) -> Extent:
        return measure([stream.open() for stream in self._streams(view, part)], at, position)

    async def tail(self, view: JobView, replica: ReplicaName, most_bytes: int) -> tuple[bytes, int]:
        """The end of a replica's log, from the beginning of a line, and the size of the whole log.

        The log contains both streams of all attempts, in order of time. Raises NotFound.
        """

        def read() -> tuple[bytes, int]:
            attempts = self._attempts(view, replica)
            return merged.tail(attempts, most_bytes), merged.size(attempts)

        return await pools.logs.run(view.job.project, read)

    async def numbered(
        self, view: JobView, replica: ReplicaName, first_line: int | None, count: int, descending: bool
    ) -> Numbered:
        """`count` lines of the same log from number `first_line`; descending: up to it.

        None means the first line, or, descending, the last. Returns fewer lines if they are very long, always in order
        of time. Raises NotFound, and TimedOut for a log of many gigabytes.
        """

        project = view.job.project
        attempts = await pools.logs.run(project, self._attempts, view, replica)
        counts = [
            [
                self._counts_of((view.job.id, attempt, replica, number, stream.hole))
                for number, stream in enumerate(streams)
            ]
            for attempt, streams in enumerate(attempts, 1)
        ]
        deadline = time.monotonic() + _COUNT_SECONDS
        while not await pools.logs.run(project, merged.count, attempts, counts):
            if time.monotonic() > deadline:
                raise TimedOut(
                    f"the lines of {replica} are still being counted: repeat the request to continue"
                )
        return await pools.logs.run(
            project, merged.numbered, attempts, counts, first_line, count, descending, _PAGE_BYTES
        )

    def _counts_of(self, key: Hashable) -> Counts:
        """Cached for the requests that read the next lines."""
        found = self._counts.pop(key, None) or Counts()
        self._counts[key] = found
        if len(self._counts) > _CACHED_COUNTS:
            del self._counts[next(iter(self._counts))]
        return found

    async def whole(self, view: JobView, replica: ReplicaName) -> AsyncIterator[bytes]:
        """The same log from its beginning to its end, in pieces. Raises NotFound."""
        found = merged.pieces(await pools.logs.run(view.job.project, self._attempts, view, replica), _PIECE)
        while piece := await pools.logs.run(view.job.project, next, found, b""):
            yield piece

    def _attempts(self, view: JobView, name: ReplicaName) -> list[list[Stream]]:
        replica = next((replica for replica in view.replicas if replica.name == name), None)
        if replica is None:
            known = ", ".join(str(replica.name) for replica in view.replicas) or "none yet"
            raise NotFound(f"the job has no replica {name}; there are {known}")
        return [
            [
                Stream(
                    self._jobs.log(view.job, attempt, name), stream, _ended(view.job, attempt, replica.ended)
                )
                for stream in (0, 1)
            ]
            for attempt in range(1, view.job.attempt + 1)
        ]

    def _is_small(self, view: JobView) -> bool:
        """Whether the log is surely in memory: one replica, first attempt, ended just now, little output."""
        job = view.job
        if (
            job.attempt != 1
            or len(view.replicas) != 1
            or job.live
            or time.time_ns() - (job.ended or 0) > _RECENT_NS
        ):
            return False
        log = self._jobs.log(job, 1, view.replicas[0].name)
        return log.size(0) + log.size(1) <= _SMALL_BYTES

    def _search_piece(
        self,
        view: JobView,
        start: int,
        end: int,
        limit: int,
        offsets: dict[str, int],
        wanted: Wanted,
        part: LogPart,
    ) -> tuple[list[Line], bool]:
        """Searches some megabytes, and moves the offsets. Returns whether that was all."""
        lines: list[Line] = []
        if wanted.words:
            for stream in self._streams(view, part):
                offset = offsets.get(stream.key, 0)
                offsets[stream.key] = skip(stream.open(), offset, start, wanted.words, _SKIPPED_BYTES)
        size = 0
        for found in self._in_range(view, start, end, dict(offsets), part):
            if len(lines) == limit or size > _SEARCH_BYTES:
                return lines, False
            offsets[found.key] = found.raw.end
            size += found.raw.end - found.raw.start
            if wanted.matches(found.line.text):
                lines.append(found.line)
        return lines, True

    def _in_range(
        self, view: JobView, start: int, end: int, offsets: dict[str, int], part: LogPart
    ) -> "Iterator[_FoundLine]":
        streams = [
            self._lines(stream, start, offsets.get(stream.key, 0)) for stream in self._streams(view, part)
        ]
        merged_lines = heapq.merge(*streams, key=_time_of)
        return itertools.takewhile(lambda found: found.line.at <= end, merged_lines)

    def _page(
        self,
        view: JobView,
        start: int,
        end: int,
        limit: int,
        offsets: dict[str, int],
        most_bytes: int,
        part: LogPart,
    ) -> LogPage:
        in_range = self._in_range(view, start, end, offsets, part)
        page, over = _first_lines(in_range, limit, most_bytes)
        offsets |= {found.key: found.raw.end for found in page}
        return LogPage([found.line for found in page], _write_cursor(view.job.id, offsets), over)

    def _page_back(
        self,
        view: JobView,
        start: int,
        end: int,
        limit: int,
        offsets: dict[str, int],
        part: LogPart,
    ) -> LogPage:
        # Lines of the same time are in the order of the streams, so here in reverse order.
        reverse = reversed(list(self._streams(view, part)))
        streams = [self._lines_back(stream, end, offsets.get(stream.key)) for stream in reverse]
        merged_lines = heapq.merge(*streams, key=_time_of, reverse=True)
        in_range = itertools.takewhile(lambda found: found.line.at >= start, merged_lines)
        page, over = _first_lines(in_range, limit, _PAGE_BYTES)
        offsets |= {found.key: found.raw.start for found in page}
        return LogPage([found.line for found in page], _write_cursor(view.job.id, offsets), over)

    def _streams(self, view: JobView, part: LogPart) -> "Iterator[_JobStream]":
        for attempt in range(1, view.job.attempt + 1):
            for number, replica in enumerate(view.replicas):
                if part.replica not in (None, replica.name) or part.attempt not in (None, attempt):
                    continue
                log = self._jobs.log(view.job, attempt, replica.name)
                ended = _ended(view.job, attempt, replica.ended)
                for stream in (0, 1):
                    yield _JobStream(log, attempt, number, replica.name, stream, ended)

    def _lines(self, stream: "_JobStream", since: int, offset: int) -> "Iterator[_FoundLine]":
        return map(stream.found, stream.open().lines(offset, since))

    def _lines_back(self, stream: "_JobStream", until: int, before: int | None) -> "Iterator[_FoundLine]":
        return map(stream.found, stream.open().lines_back(before, until))


class _JobStream(NamedTuple):
    """One stream of a job's log."""

    log: ReplicaLog
    attempt: int
    number: int
    replica: ReplicaName
    stream: int
    ended: int | None

    @property
    def key(self) -> str:
        return f"{self.attempt}.{self.number}.{self.stream}"

    def open(self) -> Stream:
        return Stream(self.log, self.stream, self.ended)

    def found(self, raw: RawLine) -> "_FoundLine":
        text = raw.text.removesuffix(b"\r").decode("utf-8", "replace")
        return _FoundLine(
            Line(raw.at, self.attempt, self.replica, self.stream, raw.start, text), self.key, raw
        )


class _FoundLine(NamedTuple):
    line: Line
    key: str
    raw: RawLine


def _time_of(found: _FoundLine) -> int:
    return found.line.at


def _first_lines(found: Iterator[_FoundLine], limit: int, most_bytes: int) -> tuple[list[_FoundLine], bool]:
    """Up to `limit` lines or little more than `most_bytes`, and whether these are all."""
    lines: list[_FoundLine] = []
    size = 0
    for found_line in found:
        if len(lines) == limit or size > most_bytes:
            return lines, False
        lines.append(found_line)
        size += len(found_line.line.text)
    return lines, True


def _ended(job: Job, attempt: int, ended: int | None) -> int | None:
    """When the replica ended. It is 0 for earlier attempts, whose last lines get the time of their last mark."""
    return ended if attempt == job.attempt else 0


def _replace(
    task: asyncio.Task[None] | None, then: Coroutine[None, None, None] | None
) -> asyncio.Task[None] | None:
    if task:
        task.cancel()
    return asyncio.create_task(then) if then else None


def _write_cursor(job_id: int, offsets: dict[str, int]) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode((job_id, offsets))).rstrip(b"=").decode()


def _read_cursor(text: str, job_id: int) -> dict[str, int]:
    if not text:
        return {}
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        owner, offsets = msgspec.msgpack.decode(raw, type=tuple[int, dict[str, int]])
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise Invalid("the cursor was not issued by this service", field="cursor") from None
    if _write_cursor(owner, offsets) != text:
        raise Invalid("the cursor was not issued by this service", field="cursor")
    if owner != job_id or any(offset < 0 for offset in offsets.values()):
        raise Invalid("the cursor belongs to another job", field="cursor")
    return offsets
