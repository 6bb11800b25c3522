"""GET `/turnout/v1/changes`: a stream of events, one for each change of a job that the caller may see."""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator
from typing import NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from turnout.access.revoked import until_revoked
from turnout.dialects import Context
from turnout.dialects.native.auth import Guard
from turnout.dialects.native.job_list import job_rows
from turnout.service import Caller

KEEP_ALIVE_SECONDS = 15.0
_MOST_AT_ONCE = 100
_APART = 0.05
"""Seconds between two batches of events, so that a job that changes several times in a moment is sent once."""
_CACHED = 1000


class _Rendered(NamedTuple):
    number: int
    """Of the change after which it was read."""
    project: str
    event: bytes
    """Without its id: another stream may have read the job after a later change."""


def change_routes(context: Context, guarded: Guard) -> list[Route]:
    feed = _Feed(context)

    async def changes(request: Request, caller: Caller) -> Response:
        """Root sees all projects unless it names one. `Last-Event-ID` (or `from`) continues a stream."""
        project = None if caller.root and not request.query_params.get("project") else caller.project
        after = request.headers.get("last-event-id") or request.query_params.get("from", "")
        events = until_revoked(context.keys, caller.key, feed.events(project, after))
        return StreamingResponse(
            events, media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    return [Route("/turnout/v1/changes", guarded(changes))]


class _Feed:
    """All streams share the events, each of which is made once."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._log = context.jobs.change_log
        self._run = secrets.token_hex(4)
        """Tells the numbers of this run of the service from those of others."""
        self._rendered: dict[int, _Rendered] = {}
        self._rendering = asyncio.Lock()

    async def events(self, project: str | None, after: str) -> AsyncIterator[bytes]:
        number = self._position(after)
        if number is None:
            number = self._log.number
            # Without an id nothing was missed, because nothing was read before.
            yield self._id_line(number) + _event("reset" if after else "ready", b"{}")
        while not self._log.closed:
            changed = self._log.since(number, _MOST_AT_ONCE)
            if changed is None:
                number = self._log.number
                yield self._id_line(number) + _event("reset", b"{}")
                continue
            if changed:
                number = changed[-1][0]
                if batch := b"".join(await self._seen(project, changed)):
                    yield batch
                await asyncio.sleep(_APART)
                continue
            try:
                async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                    await self._log.wait(number)
            except TimeoutError:
                # The id moves on although nothing was sent, for a stream whose project is quiet.
                yield self._id_line(number) + b": keep-alive\n\n"

    def _position(self, after: str) -> int | None:
        """The number in an event's id; None if it is from another run, or too old."""
        match = re.fullmatch(rf"{self._run}-([0-9]{{1,18}})", after)
        if match is None or self._log.since(int(match[1]), 0) is None:
            return None
        return int(match[1])

    async def _seen(self, project: str | None, changed: list[tuple[int, int]]) -> list[bytes]:
        async with self._rendering:
            missing = [
                (number, job_id)
                for number, job_id in changed
                if job_id not in self._rendered or self._rendered[job_id].number < number
            ]
            if missing:
                await self._render(missing)
            found = [(number, self._rendered.get(job_id)) for number, job_id in changed]
        return [
            self._id_line(number) + one.event
            for number, one in found
            if one and project in (None, one.project)
        ]

    async def _render(self, changed: list[tuple[int, int]]) -> None:
        numbers = {job_id: number for number, job_id in changed}
        jobs = await self._context.jobs.stored(list(numbers))
        for job, row in zip(jobs, await job_rows(self._context, jobs), strict=True):
            if job.deleted:
                event = _event("deleted", msgspec.json.encode({"id": str(job.id)}))
            else:
                event = _event("change", msgspec.json.encode(row))
            self._rendered.pop(job.id, None)
            self._rendered[job.id] = _Rendered(numbers[job.id], job.project, event)
        while len(self._rendered) > _CACHED:
            del self._rendered[next(iter(self._rendered))]

    def _id_line(self, number: int) -> bytes:
        return f"id: {self._run}-{number}\n".encode()


def _event(kind: str, data: bytes) -> bytes:
    return f"event: {kind}\ndata: ".encode() + data + b"\n\n"
