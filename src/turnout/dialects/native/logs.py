"""The log of a job in pages, searched, and as a file. `routes` has the stream of events that follows it."""

import re
from collections.abc import AsyncIterator
from urllib.parse import quote

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from turnout.access.revoked import until_revoked
from turnout.dialects import Context
from turnout.dialects.native import reply
from turnout.dialects.native.auth import Guard
from turnout.dialects.native.job_filter import read_time
from turnout.dialects.native.lookup import find_job, find_part, find_replica
from turnout.dialects.native.wire import ExtentDocument, LinesDocument, line_document
from turnout.errors import Invalid
from turnout.service import Caller, JobView
from turnout.service.log_search import Wanted
from turnout.service.logs import STREAMED_BYTES

DEFAULT_LINES = 1000
MOST_LINES = 5000
_LONGEST_SEARCH = 1000
_LINES_AT_ONCE = 2000
_ERROR = re.compile(
    r"\b(?:error|fatal|panic|traceback|segmentation fault|core dumped|out of memory|oom-kill\w*|killed|abort(?:ed)?)\b"
    r"|(?:Error|Exception|Interrupt)\b",
    re.IGNORECASE,
)
"""What a line that tells of an error has. A guess, but the same for everybody."""
_ERROR_WORDS = (
    b"error",
    b"fatal",
    b"panic",
    b"traceback",
    b"segmentation fault",
    b"core dumped",
    b"out of memory",
    b"oom-kill",
    b"killed",
    b"abort",
    b"exception",
    b"interrupt",
)
"""One of them is in each line that `_ERROR` finds."""


def log_routes(context: Context, guarded: Guard) -> list[Route]:
    calls = _LogHandlers(context)
    return [
        Route("/turnout/v1/jobs/{job:path}/logs/lines", guarded(calls.lines)),
        Route("/turnout/v1/jobs/{job:path}/logs/extent", guarded(calls.extent)),
        Route("/turnout/v1/jobs/{job:path}/logs/download", guarded(calls.download)),
    ]


class _LogHandlers:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._logs = context.logs

    async def lines(self, request: Request, caller: Caller) -> Response:
        """A page of lines, oldest first; with `back=true`, newest first. `search` leaves only lines with that text."""
        _, view, _ = await find_job(self._context.jobs, request, caller)
        query = request.query_params
        text, back = query.get("search", ""), _flag("back", query)
        errors = _flag("errors", query)
        if len(text) > _LONGEST_SEARCH:
            raise Invalid(f"search: has more than {_LONGEST_SEARCH} characters", field="search")
        if (text or errors) and back:
            raise Invalid("back: must be false with search and errors, which go forward", field="back")
        wanted = {
            "start": self._time(request, "since") or 0,
            "end": self._time(request, "until") or (1 << 63) - 1,
            "limit": _limit(query.get("limit", "")),
        }
        cursor, part = query.get("cursor", ""), find_part(view, request)
        if text or errors:
            page = await self._logs.search(view, _wanted(text, errors), **wanted, cursor=cursor, part=part)
        elif back:
            page = await self._logs.query_back(view, **wanted, cursor=cursor, part=part)
        else:
            page = await self._logs.query(view, **wanted, cursor=cursor, part=part)
        return reply.json(
            LinesDocument([line_document(view.job, line) for line in page.lines], page.cursor, page.over)
        )

    async def extent(self, request: Request, caller: Caller) -> Response:
        """With `at`, the bytes before that time; with `position`, the time of that byte; without either, the size."""
        _, view, _ = await find_job(self._context.jobs, request, caller)
        text = request.query_params.get("position", "")
        if text and not re.fullmatch(r"[0-9]{1,15}", text):
            raise Invalid(f"position: must be a number of bytes, not {text[:100]!r}", field="position")
        position = int(text) if text else None
        found = await self._logs.extent(view, find_part(view, request), self._time(request, "at"), position)
        return reply.json(ExtentDocument(found.size, found.position, str(found.at)))

    async def download(self, request: Request, caller: Caller) -> Response:
        """The log of a replica as text or, without `replica`, of all replicas, each line with the replica's name."""
        caller, view, _ = await find_job(self._context.jobs, request, caller)
        only = find_replica(view, request)
        name = f"{view.job.name}-{only}.log" if only else f"{view.job.name}.log"
        pieces = self._logs.whole(view, only) if only else self._named_lines(view)
        return StreamingResponse(
            until_revoked(self._context.keys, caller.key, pieces),
            media_type="text/plain; charset=utf-8",
            headers={
                "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
                "Cache-Control": "no-store",
                "X-Content-Type-Options": "nosniff",
            },
        )

    async def _named_lines(self, view: JobView) -> AsyncIterator[bytes]:
        cursor, over = "", False
        while not over:
            page = await self._logs.query(
                view, limit=_LINES_AT_ONCE, cursor=cursor, most_bytes=STREAMED_BYTES
            )
            cursor, over = page.cursor, page.over
            if page.lines:
                yield "".join(f"{line.replica} | {line.text}\n" for line in page.lines).encode()

    def _time(self, request: Request, name: str) -> int | None:
        text = request.query_params.get(name)
        return read_time(name, text, self._context.clock()) if text else None


def _limit(text: str) -> int:
    if text and not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise Invalid(f"limit: must be a whole number from 1 to {MOST_LINES}, not {text!r}", field="limit")
    return min(int(text or DEFAULT_LINES), MOST_LINES)


def _flag(name: str, query: QueryParams) -> bool:
    text = query.get(name, "false").lower()
    if text not in ("true", "false"):
        raise Invalid(f"{name}: must be true or false, not {text!r}", field=name)
    return text == "true"


def _wanted(text: str, errors: bool) -> Wanted:
    folded = text.casefold()
    # Other letters have several forms, such as ß and ss, so every line has to be looked at.
    words = (folded.encode(),) if text.isascii() and text else ()
    if errors:
        return Wanted(lambda line: _ERROR.search(line) and folded in line.casefold(), words or _ERROR_WORDS)
    return Wanted(lambda line: folded in (line.lower() if words else line.casefold()), words)
