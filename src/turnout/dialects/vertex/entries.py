"""Cloud Logging's `entries:list` for the logs of a job, which `gcloud ai custom-jobs stream-logs` asks for."""

import base64
import binascii
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.responses import Response

from turnout.dialects.vertex import auth, decode, log_filter, log_lines, reply
from turnout.dialects.vertex.auth import Holder
from turnout.dialects.vertex.house import House
from turnout.dialects.vertex.log_filter import Filter, Span
from turnout.dialects.vertex.log_lines import Entry
from turnout.dialects.vertex.translate import DIALECT
from turnout.dialects.vertex.wire import Int32, Message
from turnout.errors import Invalid, NotFound
from turnout.service import JobView

DEFAULT_SIZE, LARGEST_SIZE = 50, 1000
ORDERS = {"": False, "timestamp": False, "timestamp asc": False, "timestamp desc": True}
"""→ whether the newest come first."""
_BATCH = 2000
_MOST_LOOKED_AT = 200_000
"""Lines for one page that goes forward; it may have fewer entries than were asked for then."""

Place = tuple[int, str]


class ListLogEntriesRequest(Message):
    project_ids: list[str] = msgspec.field(default_factory=list)
    resource_names: list[str] = msgspec.field(default_factory=list)
    filter: str = ""
    order_by: str = ""
    page_size: Int32 = 0
    page_token: str = ""


async def list_entries(house: House, holder: Holder, body: bytes) -> Response:
    asked = decode.decode(body, ListLogEntriesRequest, "list_log_entries_request").message
    if asked.order_by not in ORDERS:
        raise Invalid(
            f"orderBy must be timestamp asc or timestamp desc, not {asked.order_by[:100]!r}.", field="orderBy"
        )
    if asked.page_size < 0:
        raise Invalid("pageSize must not be negative.", field="pageSize")
    wanted = log_filter.parse(asked.filter)
    job = log_filter.job_of(wanted)
    if job is None:
        raise Invalid(
            'filter must name a job here, as in resource.labels.job_id="123" AND severity>=ERROR.',
            field="filter",
        )
    after = _read_token(asked.page_token)
    view = await _find(house, holder, asked, job)
    if view is None:
        return reply.empty()
    size = min(asked.page_size or DEFAULT_SIZE, LARGEST_SIZE)
    read = _backward if ORDERS[asked.order_by] else _forward
    found, last = await read(house, view, wanted, after, size)
    shown: dict[str, Any] = {"entries": [one.document(view.job) for one in found]} if found else {}
    if last:
        shown["nextPageToken"] = _write_token(last)
    return reply.json(shown)


async def _find(house: House, holder: Holder, asked: ListLogEntriesRequest, job: str) -> JobView | None:
    """The job, if it is one of the projects' that were named."""
    names = [*asked.resource_names, *(f"projects/{project}" for project in asked.project_ids)]
    if not names:
        raise Invalid(
            "resourceNames must name a project, as projects/my-project does.", field="resourceNames"
        )
    found: JobView | None = None
    for name in names:
        match name.split("/"):
            case ["projects", project, *_] if project:
                caller = await auth.caller(house, holder, project)
            case _:
                raise Invalid(
                    f"resourceNames: {name[:100]!r} must be a project's name.", field="resourceNames"
                )
        if not (job.isascii() and job.isdecimal() and len(job) <= 19):
            continue
        try:
            view = await house.jobs.by_id(caller, int(job))
        except NotFound:
            continue
        found = view if view.job.dialect == DIALECT else found
    return found


async def _forward(
    house: House, view: JobView, wanted: Filter, after: Place | None, size: int
) -> tuple[list[Entry], Place | None]:
    """The first that match behind `after`, and where the next page goes on, if there is one."""
    span = log_filter.span_of(wanted)
    if after:
        span = Span(max(span.start, after[0]), span.end)
    found: list[Entry] = []
    looked = 0
    async with aclosing(_all(house, view, span)) as entries:
        async for entry in entries:
            if after and entry.place <= after:
                continue
            looked += 1
            if looked > _MOST_LOOKED_AT:
                return found, entry.place
            if not log_filter.matches(wanted, entry.document(view.job), entry.at):
                continue
            if len(found) == size:
                return found, found[-1].place
            found.append(entry)
    return found, None


async def _backward(
    house: House, view: JobView, wanted: Filter, before: Place | None, size: int
) -> tuple[list[Entry], Place | None]:
    """The last that match before `before`, newest first. Logs are read forward, so all before them are gone through."""
    span = log_filter.span_of(wanted)
    if before:
        span = Span(span.start, min(span.end, before[0]))
    found: deque[Entry] = deque(maxlen=size + 1)
    async with aclosing(_all(house, view, span)) as entries:
        async for entry in entries:
            if before and entry.place >= before:
                continue
            if log_filter.matches(wanted, entry.document(view.job), entry.at):
                found.append(entry)
    page = list(reversed(found))[:size]
    return page, page[-1].place if len(found) > size else None


async def _all(house: House, view: JobView, span: Span) -> AsyncGenerator[Entry]:
    """What the job printed and what the service says of it, in the order of time."""
    said = deque(
        entry
        for entry in log_lines.of_service(view, await house.jobs.events(view))
        if span.start <= entry.at <= span.end
    )
    cursor, over = "", False
    while not over:
        page = await house.logs.query(view, start=span.start, end=span.end, limit=_BATCH, cursor=cursor)
        cursor, over = page.cursor, page.over
        for line in page.lines:
            while said and said[0].at < line.at:
                yield said.popleft()
            yield log_lines.of_line(line)
    for entry in said:
        yield entry


def _write_token(place: Place) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(place)).rstrip(b"=").decode()


def _read_token(token: str) -> Place | None:
    if not token:
        return None
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), b"-_", validate=True)
        return msgspec.msgpack.decode(raw, type=Place)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise Invalid(
            "pageToken must be exactly the nextPageToken of the last answer.", field="pageToken"
        ) from None
