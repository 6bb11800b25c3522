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
from turnout.dialects.native.auth import Handler, guard
from turnout.dialects.native.clusters import cluster_routes
from turnout.dialects.native.keys import key_routes
from turnout.dialects.native.lookup import find_job
from turnout.dialects.native.objects import object_routes
from turnout.dialects.native.shells import shell_routes
from turnout.dialects.native.sweep import sweep_routes
from turnout.dialects.native.wire import LastLines, explain_document, job_document, line_document, with_older
from turnout.job import Job, ReplicaState, State
from turnout.paths import Paths
from turnout.service import Caller, JobView, LogPage, while_connected
from turnout.service.logs import STREAMED_BYTES

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

    def __init__(self, context: Context) -> None:
        self._app = Starlette(routes=_routes(context))

    def owns(self, scope: Scope) -> bool:
        return scope["path"].startswith("/turnout/v1/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def _routes(context: Context) -> list[Route]:
    calls = _JobHandlers(context)
    guarded = guard(context.keys, context.settings.no_auth)
    table: dict[str, Handler] = {
        "/turnout/v1/whoami": calls.whoami,
        # `path`, because a job's name can contain slashes: routes match after `%2F` is decoded.
        "/turnout/v1/jobs/{job:path}/explain": calls.explain,
        "/turnout/v1/jobs/{job:path}/wait": calls.wait,
        "/turnout/v1/jobs/{job:path}/logs": calls.logs,
    }
    return [
        *(Route(path, guarded(handler)) for path, handler in table.items()),
        *shell_routes(context.jobs, context.web_access, guarded),
        Route("/turnout/v1/jobs/{job:path}/stop", guarded(calls.stop), methods=["POST"]),
        Route("/turnout/v1/jobs/{job:path}", guarded(calls.delete), methods=["DELETE"]),
        Route("/turnout/v1/jobs/{job:path}", guarded(calls.job)),
        *object_routes(context.objects, context.bodies, context.keys, guarded),
        *key_routes(context.keys, context.bodies, guarded),
        *sweep_routes(context.sweeper, guarded),
        *cluster_routes(context.clusters, guarded),
    ]


class _JobHandlers:
    def __init__(self, context: Context) -> None:
        self._keys = context.keys
        self._jobs = context.jobs
        self._logs = context.logs
        self._searches = context.searches
        self._settings = context.settings

    async def whoami(self, request: Request, caller: Caller) -> Response:
        return reply.json({"key": caller.key, "project": caller.project, "root": caller.root})

    async def job(self, request: Request, caller: Caller) -> Response:
        _, view, older = await find_job(self._jobs, request, caller)
        return _job(view, older)

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
        explanation = await self._jobs.explain(view)
        events = await self._jobs.events(view)
        workspaces, trials = await self._workspaces(view), await self._searches.trials(view)
        document = explain_document(view.job, view.replicas, explanation, events, workspaces, trials)
        document.last_lines = await self._last_lines(view)
        return reply.json(with_older(document, older))

    async def wait(self, request: Request, caller: Caller) -> Response:
        until = _UNTIL.get(request.query_params.get("for", "ended"))
        if until is None:
            raise errors.Invalid("for must be started or ended", field="for")
        seconds = _seconds(request.query_params.get("timeout", "50"))
        caller, view, _ = await find_job(self._jobs, request, caller)
        waiting = unless_revoked(self._keys, caller.key, self._jobs.wait(caller, view.job.id, until, seconds))
        return _job(await while_connected(request.receive, waiting))

    async def logs(self, request: Request, caller: Caller) -> Response:
        caller, view, _ = await find_job(self._jobs, request, caller)
        cursor = request.headers.get("last-event-id") or request.query_params.get("from", "")
        follow = request.query_params.get("follow", "false").lower() == "true"
        await self._logs.query(
            view, limit=1, cursor=cursor
        )  # so that an invalid cursor becomes an HTTP error, before the stream begins
        stream = until_revoked(self._keys, caller.key, self._stream(caller, view, cursor, follow))
        return StreamingResponse(
            stream, media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    async def _stream(self, caller: Caller, view: JobView, cursor: str, follow: bool) -> AsyncIterator[bytes]:
        if follow:
            async for page in self._logs.follow(caller, view, cursor):
                yield _event(view.job, page)
        else:
            over = False
            while not over:
                page = await self._logs.query(
                    view, limit=_LINES_PER_EVENT, cursor=cursor, most_bytes=STREAMED_BYTES
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
