"""The calls: whoami, clusters, a job, stop, delete, explain, wait (long poll), logs (server-sent events)."""

import re
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from turnout import errors
from turnout.access.revoked import unless_revoked, until_revoked
from turnout.dialects import Context
from turnout.dialects.native import reply
from turnout.dialects.native.audit import audit_routes
from turnout.dialects.native.auth import Handler, guard
from turnout.dialects.native.changes import change_routes
from turnout.dialects.native.clusters import cluster_routes
from turnout.dialects.native.create import create_routes
from turnout.dialects.native.images import image_routes
from turnout.dialects.native.job_details import job_details, usage_routes
from turnout.dialects.native.job_filter import read_time
from turnout.dialects.native.job_list import job_list_routes
from turnout.dialects.native.keys import key_routes
from turnout.dialects.native.logs import log_routes
from turnout.dialects.native.lookup import find_job, find_part
from turnout.dialects.native.objects import object_routes
from turnout.dialects.native.projects import project_routes
from turnout.dialects.native.queue import queue_routes
from turnout.dialects.native.runtimes import runtime_routes
from turnout.dialects.native.searches import search_routes
from turnout.dialects.native.shells import shell_routes
from turnout.dialects.native.sweep import sweep_routes
from turnout.dialects.native.webhooks import webhook_routes
from turnout.dialects.native.wire import (
    ExplainDocument,
    LastLines,
    explain_document,
    job_document,
    line_document,
    with_older,
)
from turnout.job import Job, ReplicaState, State
from turnout.paths import Paths
from turnout.service import Caller, JobView, LogPage, calls, while_connected
from turnout.service.logs import STREAMED_BYTES, LogPart

_LAST_BYTES = 4000
_LAST_LINES = 10
_LONGEST_WAIT = 600
_LINES_PER_EVENT = 2000
_UNTIL: dict[str, Callable[[Job], bool]] = {
    "started": lambda job: not job.live or job.state in (State.RUNNING, State.STOPPING),
    "ended": lambda job: not job.live,
}


class Native:
    name = "native"
    make_trial_job = None
    submit = None
    conversion = None

    def __init__(self, context: Context) -> None:
        self._app = Starlette(routes=routes(context))

    async def run(self) -> None:
        """There is nothing to do between requests."""

    def owns(self, scope: Scope) -> bool:
        return scope["path"].startswith("/turnout/v1/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def routes(context: Context) -> list[Route]:
    calls = _JobHandlers(context)
    guarded = guard(context.keys, context.page_sessions, context.settings.no_auth)
    table: dict[str, Handler] = {
        "/turnout/v1/whoami": calls.whoami,
        # `path`, because a job's name can contain slashes: routes match after `%2F` is decoded.
        "/turnout/v1/jobs/{job:path}/explain": calls.explain,
        "/turnout/v1/jobs/{job:path}/wait": calls.wait,
        "/turnout/v1/jobs/{job:path}/logs": calls.logs,
    }
    return [
        *(Route(path, guarded(handler)) for path, handler in table.items()),
        *job_list_routes(context, guarded),
        *change_routes(context, guarded),
        *queue_routes(context, guarded),
        *create_routes(context, guarded),
        *usage_routes(context, guarded),
        *log_routes(context, guarded),
        *shell_routes(context.jobs, context.web_access, guarded),
        Route("/turnout/v1/jobs/{job:path}/stop", guarded(calls.stop), methods=["POST"]),
        Route("/turnout/v1/jobs/{job:path}", guarded(calls.delete), methods=["DELETE"]),
        Route("/turnout/v1/jobs/{job:path}", guarded(calls.job)),
        *object_routes(context.objects, context.bodies, context.keys, guarded),
        *key_routes(context.keys, context.bodies, guarded),
        *audit_routes(context, guarded),
        *webhook_routes(context, guarded),
        *project_routes(context, guarded),
        *search_routes(context, guarded),
        *sweep_routes(context.sweeper, guarded),
        *cluster_routes(context.clusters, guarded),
        *runtime_routes(context.runtimes, guarded),
        *image_routes(context.image_cache, guarded),
    ]


class _JobHandlers:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._keys = context.keys
        self._jobs = context.jobs
        self._logs = context.logs
        self._searches = context.searches
        self._settings = context.settings

    async def whoami(self, request: Request, caller: Caller) -> Response:
        return reply.json({"key": caller.key, "project": caller.project, "root": caller.root})

    async def job(self, request: Request, caller: Caller) -> Response:
        caller, view, older = await find_job(self._jobs, request, caller)
        explained = await self._explained(view, older)
        return reply.json(await job_details(self._context, view, explained))

    async def stop(self, request: Request, caller: Caller) -> Response:
        """Returns without waiting for the end of the job. Raises WrongState if it has ended."""
        caller, view, older = await find_job(self._jobs, request, caller)
        await self._jobs.stop(caller, view.job.id)
        return _job(await self._jobs.by_id(caller, view.job.id), older)

    async def delete(self, request: Request, caller: Caller) -> Response:
        """A job that runs is stopped first."""
        caller, view, older = await find_job(self._jobs, request, caller)
        await self._jobs.delete(caller, view.job.id)
        return _job(view, older)

    async def explain(self, request: Request, caller: Caller) -> Response:
        _, view, older = await find_job(self._jobs, request, caller)
        return reply.json(await self._explained(view, older))

    async def _explained(self, view: JobView, older: Sequence[JobView]) -> ExplainDocument:
        last = await self._last_lines(view)
        explanation = await self._jobs.explain(view, last.lines if last else ())
        events = await self._jobs.events(view)
        workspaces, trials = await self._workspaces(view), await self._searches.trials(view)
        document = explain_document(view.job, view.replicas, explanation, events, workspaces, trials)
        document.last_lines = last
        return with_older(document, older)

    async def wait(self, request: Request, caller: Caller) -> Response:
        until = _UNTIL.get(request.query_params.get("for", "ended"))
        if until is None:
            raise errors.Invalid("for must be started or ended", field="for")
        seconds = _seconds(request.query_params.get("timeout", "50"))
        calls.waits()
        caller, view, _ = await find_job(self._jobs, request, caller)
        waiting = unless_revoked(self._keys, caller.key, self._jobs.wait(caller, view.job.id, until, seconds))
        return _job(await while_connected(request.receive, waiting))

    async def logs(self, request: Request, caller: Caller) -> Response:
        caller, view, _ = await find_job(self._jobs, request, caller)
        cursor = request.headers.get("last-event-id") or request.query_params.get("from", "")
        follow = request.query_params.get("follow", "false").lower() == "true"
        part, since = find_part(view, request), request.query_params.get("since")
        start = read_time("since", since, self._context.clock()) if since else 0
        await self._logs.query(
            view, limit=1, cursor=cursor
        )  # so that an invalid cursor becomes an HTTP error, before the stream begins
        stream = until_revoked(
            self._keys, caller.key, self._stream(caller, view, cursor, part, start, follow)
        )
        return StreamingResponse(
            stream, media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    async def _stream(
        self, caller: Caller, view: JobView, cursor: str, part: LogPart, start: int, follow: bool
    ) -> AsyncIterator[bytes]:
        if follow:
            async for page in self._logs.follow(caller, view, cursor, part, start):
                yield _event(view.job, page)
        else:
            over = False
            while not over:
                page = await self._logs.query(
                    view,
                    start=start,
                    limit=_LINES_PER_EVENT,
                    cursor=cursor,
                    most_bytes=STREAMED_BYTES,
                    part=part,
                )
                cursor, over = page.cursor, page.over
                if page.lines:
                    yield _event(view.job, page)
        if not self._jobs.closing():
            last = await self._jobs.by_id(caller, view.job.id)
            yield b"event: end\ndata: " + msgspec.json.encode(job_document(last.job, last.replicas)) + b"\n\n"

    async def _last_lines(self, view: JobView) -> LastLines | None:
        """The last lines of the replica that failed first."""
        failed = [
            replica
            for replica in view.replicas
            if replica.state is ReplicaState.FAILED and replica.ended is not None
        ]
        if view.job.state is not State.FAILED or not failed:
            return None
        first = min(failed, key=lambda replica: replica.ended or 0)
        try:
            tail, _ = await self._logs.tail(view, first.name, _LAST_BYTES)
        except errors.TurnoutError:  # its logs are deleted, or its key is missing
            return None
        lines = tail.decode("utf-8", "replace").splitlines()[-_LAST_LINES:]
        return LastLines(str(first.name), lines) if lines else None

    async def _workspaces(self, view: JobView) -> list[str]:
        """The workspaces of a job that keeps them (Debug)."""
        if not view.job.attempt or not (await self._jobs.spec(view)).debug:
            return []
        paths = Paths(self._settings.data)
        return [str(paths.workspace(view.job.current, replica.name)) for replica in view.replicas]


def _seconds(text: str) -> float:
    if not re.fullmatch(r"\d{1,6}(\.\d{1,6})?", text):
        raise errors.Invalid(f"timeout must be a number of seconds, not {text!r}", field="timeout")
    return min(float(text), _LONGEST_WAIT)


def _event(job: Job, page: LogPage) -> bytes:
    """One event for a batch of lines; its id is the cursor after the last of them."""
    lines = msgspec.json.encode([line_document(job, line) for line in page.lines])
    return b"id: " + page.cursor.encode() + b"\ndata: " + lines + b"\n\n"


def _job(view: JobView, older: Sequence[JobView] = ()) -> Response:
    return reply.json(with_older(job_document(view.job, view.replicas), older))
