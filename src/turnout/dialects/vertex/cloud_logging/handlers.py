"""Cloud Logging's `entries:list` for the logs of a job, which `gcloud ai custom-jobs stream-logs` calls."""

import base64
import binascii
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response

from turnout import pools
from turnout.dialects import Context
from turnout.dialects.vertex import reply
from turnout.dialects.vertex.account import bearer
from turnout.dialects.vertex.account.bearer import Principal
from turnout.dialects.vertex.cloud_logging import log_entry, log_filter, matching
from turnout.dialects.vertex.cloud_logging.log_entry import Entry
from turnout.dialects.vertex.cloud_logging.log_filter import Filter, Span
from turnout.dialects.vertex.protobuf import codec
from turnout.dialects.vertex.translate import DIALECT
from turnout.dialects.vertex.wire import Int32, Message
from turnout.errors import Invalid, NotFound
from turnout.service import JobView, LogPage

DEFAULT_SIZE, MAX_SIZE = 50, 1000
MAX_NAMES = 100
"""The most resource names in one request, as at Google."""
ORDERS = {"": False, "timestamp": False, "timestamp asc": False, "timestamp desc": True}
"""Whether the newest entries come first."""
PAGE_SECONDS = 5.0
"""A page that takes longer ends early, with fewer entries than requested, as Google's can."""
_BATCH = 1000
_PAGE_BYTES = 4 << 20
"""Limits the memory that a page of long lines takes."""

Position = tuple[int, str]


class ListLogEntriesRequest(Message):
    project_ids: list[str] = msgspec.field(default_factory=list)
    resource_names: list[str] = msgspec.field(default_factory=list)
    filter: str = ""
    order_by: str = ""
    page_size: Int32 = 0
    page_token: str = ""


async def list_entries(context: Context, principal: Principal, body: bytes) -> Response:
    request = codec.decode(body, ListLogEntriesRequest, "list_log_entries_request").message
    if request.order_by not in ORDERS:
        raise Invalid(
            f"orderBy must be timestamp asc or timestamp desc, not {request.order_by[:100]!r}.",
            field="orderBy",
        )
    if request.page_size < 0:
        raise Invalid("pageSize must not be negative.", field="pageSize")
    condition = log_filter.parse(request.filter)
    job = log_filter.job_id(condition)
    if job is None:
        raise Invalid(
            'filter must name a job in this service, as in resource.labels.job_id="123" AND severity>=ERROR.',
            field="filter",
        )
    token = _read_token(request.page_token)
    view = await _find(context, principal, request, job)
    if view is None:
        return reply.empty()
    size = min(request.page_size or DEFAULT_SIZE, MAX_SIZE)
    page = await (_NewestFirst if ORDERS[request.order_by] else _OldestFirst)(
        context, view, condition, token, size
    ).read()
    return await pools.logs.run(view.job.project, _response, view, page)


def _response(view: JobView, page: "_Page") -> Response:
    document: dict[str, Any] = (
        {"entries": [entry.document(view.job) for entry in page.entries]} if page.entries else {}
    )
    if page.next:
        document["nextPageToken"] = _write_token(page.next)
    return reply.json(document)


async def _find(
    context: Context, principal: Principal, request: ListLogEntriesRequest, job: str
) -> JobView | None:
    """The job, if it belongs to one of the projects of the request."""
    names = [*request.resource_names, *(f"projects/{project}" for project in request.project_ids)]
    if not names:
        raise Invalid(
            "resourceNames must name a project, such as projects/my-project.", field="resourceNames"
        )
    if len(names) > MAX_NAMES:
        raise Invalid(f"resourceNames may have {MAX_NAMES} names.", field="resourceNames")
    found: JobView | None = None
    for name in names:
        match name.split("/"):
            case ["projects", project, *_] if project:
                caller = await bearer.authorize(context, principal, project)
            case _:
                raise Invalid(
                    f"resourceNames: {name[:100]!r} must be a project's name.", field="resourceNames"
                )
        if not (job.isascii() and job.isdecimal() and len(job) <= 19):
            continue
        try:
            view = await context.jobs.by_id(caller, int(job))
        except NotFound:
            continue
        found = view if view.job.dialect == DIALECT else found
    return found


class _PageToken(NamedTuple):
    """Where a page ended."""

    at: int
    id: str
    cursor: str = ""
    """A cursor of the logs at that position or shortly before it."""

    @property
    def position(self) -> Position:
        return self.at, self.id


class _Page(NamedTuple):
    entries: list[Entry]
    next: _PageToken | None
    """None on the last page."""


class _OldestFirst:
    """A page of the matching entries, the oldest first.

    Reads the logs in batches, each a short piece of work for a thread. If that takes too long, the page ends with the
    entries found so far, possibly none; its token continues the search.
    """

    def __init__(
        self, context: Context, view: JobView, condition: Filter, after: _PageToken | None, size: int
    ) -> None:
        self._context = context
        self._view = view
        self._match = matching.matcher(condition, view.job)
        self._after = after
        self._size = size
        self._span = log_filter.time_span(condition)
        self._service_entries: deque[Entry] = deque()
        """Entries of the service that are not on a page yet, ordered by time."""
        self._matches: list[Entry] = []
        self._bytes = 0
        self._last: Position | None = None
        """The last entry that was tested."""

    async def read(self) -> _Page:
        deadline = time.monotonic() + PAGE_SECONDS
        span = self._remaining_span()
        events = await self._context.jobs.events(self._view)
        self._service_entries.extend(
            entry
            for entry in log_entry.service_entries(self._view, events)
            if span.start <= entry.at <= span.end
        )
        cursor = self._after.cursor if self._after else ""
        while True:
            lines = await self._lines(span, cursor)
            if await pools.logs.run(self._view.job.project, self._take, lines):
                found = self._matches[: self._size]
                return _Page(found, _PageToken(*found[-1].position, cursor))
            cursor = lines.cursor
            if lines.over:
                return _Page(self._matches, None)
            if self._last and time.monotonic() > deadline:
                return _Page(self._matches, _PageToken(*self._last, cursor))

    def _take(self, lines: LogPage) -> bool:
        """Adds the matching entries to the page. Returns whether the page is full and another entry matches."""
        for entry in self._entries(lines):
            if self._after and not self._follows(entry.position, self._after.position):
                continue
            self._last = entry.position
            if not self._match(entry):
                continue
            if len(self._matches) == self._size or self._bytes > _PAGE_BYTES:
                return True
            self._matches.append(entry)
            self._bytes += len(entry.text)
        return False

    def _remaining_span(self) -> Span:
        return Span(max(self._span.start, self._after.at), self._span.end) if self._after else self._span

    async def _lines(self, span: Span, cursor: str) -> LogPage:
        return await self._context.logs.query(
            self._view, start=span.start, end=span.end, limit=_BATCH, cursor=cursor
        )

    def _entries(self, lines: LogPage) -> Iterator[Entry]:
        """Lines of the job and entries of the service, ordered by time."""
        for line in lines.lines:
            while self._service_entries and self._service_entries[0].at < line.at:
                yield self._service_entries.popleft()
            yield log_entry.line_entry(line)
        while lines.over and self._service_entries:
            yield self._service_entries.popleft()

    def _follows(self, position: Position, other: Position) -> bool:
        return position > other


class _NewestFirst(_OldestFirst):
    """Like _OldestFirst, but with the newest entries first."""

    def _remaining_span(self) -> Span:
        return Span(self._span.start, min(self._span.end, self._after.at)) if self._after else self._span

    async def _lines(self, span: Span, cursor: str) -> LogPage:
        return await self._context.logs.query_back(
            self._view, start=span.start, end=span.end, limit=_BATCH, cursor=cursor
        )

    def _entries(self, lines: LogPage) -> Iterator[Entry]:
        for line in lines.lines:
            while self._service_entries and self._service_entries[-1].at >= line.at:
                yield self._service_entries.pop()
            yield log_entry.line_entry(line)
        while lines.over and self._service_entries:
            yield self._service_entries.pop()

    def _follows(self, position: Position, other: Position) -> bool:
        return position < other


def _write_token(token: _PageToken) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(token)).rstrip(b"=").decode()


def _read_token(token: str) -> _PageToken | None:
    if not token:
        return None
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), b"-_", validate=True)
        found = msgspec.msgpack.decode(raw, type=_PageToken)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        found = None
    if found is None or _write_token(found) != token:
        raise Invalid(
            "pageToken must be exactly the nextPageToken of the previous response.", field="pageToken"
        )
    return found
