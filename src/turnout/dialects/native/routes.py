"""The calls: whoami, clusters, a job, explain, wait (long poll), logs (server-sent events)."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Coroutine

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from turnout import errors
from turnout.access import Keys
from turnout.config import SHARED_CLUSTERS, Settings
from turnout.dialects.native.guard import Handler, guard
from turnout.dialects.native.keys import key_routes
from turnout.dialects.native.objects import object_routes
from turnout.dialects.native.shells import Uris, shell_routes
from turnout.dialects.native.wire import explain_document, job_document, line_document
from turnout.job import Job, State
from turnout.paths import Paths
from turnout.service import Caller, Jobs, JobView, LogPage, Logs, Objects, Searches

_LONGEST_WAIT = 600
_LINES_AT_ONCE = 2000
_UNTIL: dict[str, Callable[[Job], bool]] = {
    "started": lambda job: not job.live or job.state in (State.RUNNING, State.STOPPING),
    "ended": lambda job: not job.live,
}


def routes(
    jobs: Jobs, logs: Logs, searches: Searches, objects: Objects, keys: Keys, settings: Settings, uris: Uris
) -> list[Route]:
    calls = _Calls(jobs, logs, searches, settings)
    guarded = guard(keys, settings.no_auth)
    table: dict[str, Handler] = {
        "/turnout/v1/whoami": calls.whoami,
        "/turnout/v1/clusters": calls.clusters,
        # A name may have slashes: paths are matched when `%2F` is one again.
        "/turnout/v1/jobs/{job:path}/explain": calls.explain,
        "/turnout/v1/jobs/{job:path}/wait": calls.wait,
        "/turnout/v1/jobs/{job:path}/logs": calls.logs,
    }
    about_jobs = [Route(path, guarded(handler)) for path, handler in table.items()]
    about_jobs += shell_routes(jobs, uris, guarded)
    about_jobs.append(Route("/turnout/v1/jobs/{job:path}", guarded(calls.job)))
    return [*about_jobs, *object_routes(objects, guarded), *key_routes(keys, guarded)]


class _Calls:
    def __init__(self, jobs: Jobs, logs: Logs, searches: Searches, settings: Settings) -> None:
        self._jobs = jobs
        self._logs = logs
        self._searches = searches
        self._settings = settings

    async def whoami(self, request: Request, caller: Caller) -> Response:
        return _json({"key": caller.key, "project": caller.project, "root": caller.root})

    async def clusters(self, request: Request, caller: Caller) -> Response:
        found = self._settings.all_clusters()
        listed = [
            {"name": name, "engine": cluster.engine, "shared": name in SHARED_CLUSTERS}
            for name, cluster in sorted(found.items())
        ]
        return _json({"clusters": listed})

    async def job(self, request: Request, caller: Caller) -> Response:
        return _job(await self._find(request, caller))

    async def explain(self, request: Request, caller: Caller) -> Response:
        view = await self._find(request, caller)
        explanation = await self._jobs.explain(view)
        events = await self._jobs.events(view)
        kept, trials = await self._kept(view), await self._searches.trials(view)
        return _json(explain_document(view.job, view.replicas, explanation, events, kept, trials))

    async def wait(self, request: Request, caller: Caller) -> Response:
        until = _UNTIL.get(request.query_params.get("for", "ended"))
        if until is None:
            raise errors.Invalid("for must be started or ended", field="for")
        seconds = _seconds(request.query_params.get("timeout", "50"))
        view = await self._find(request, caller)
        return _job(await _while_connected(request, self._jobs.wait(caller, view.job.id, until, seconds)))

    async def logs(self, request: Request, caller: Caller) -> Response:
        view = await self._find(request, caller)
        cursor = request.headers.get("last-event-id") or request.query_params.get("from", "")
        follow = request.query_params.get("follow", "false").lower() == "true"
        await self._logs.query(view, limit=1, cursor=cursor)  # a bad cursor is told before the stream begins
        stream = self._stream(caller, view, cursor, follow)
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
                page = await self._logs.query(view, limit=_LINES_AT_ONCE, cursor=cursor)
                cursor, over = page.cursor, page.over
                if page.lines:
                    yield _event(view.job, page)
        if not self._jobs.closing():
            last = await self._jobs.by_id(caller, view.job.id)
            yield b"event: end\ndata: " + msgspec.json.encode(job_document(last.job, last.replicas)) + b"\n\n"

    async def _kept(self, view: JobView) -> list[str]:
        """The workspaces of a job that asked to keep them."""
        if not view.job.attempt or not (await self._jobs.spec(view)).debug:
            return []
        paths = Paths(self._settings.data)
        return [str(paths.workspace(view.job.current, replica.name)) for replica in view.replicas]

    async def _find(self, request: Request, caller: Caller) -> JobView:
        cluster = request.query_params.get("cluster", "")
        try:
            return await self._jobs.by_reference(caller, request.path_params["job"], cluster)
        except errors.NotFound as error:
            raise errors.NotFound(
                f"{error.message}: name one by its name, its number or its UUID; `tictl job list` shows TI-A's"
            ) from None


async def _while_connected(request: Request, answer: Coroutine[None, None, JobView]) -> JobView:
    """Who has gone does not need an answer, and shall not be remembered until it would have come."""
    waiting = asyncio.create_task(answer)
    gone = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait((waiting, gone), return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise errors.TimedOut("the client has gone")
        return waiting.result()
    finally:
        waiting.cancel()
        gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _seconds(text: str) -> float:
    if not re.fullmatch(r"\d{1,6}(\.\d{1,6})?", text):
        raise errors.Invalid(f"timeout must be a number of seconds, not {text!r}", field="timeout")
    return min(float(text), _LONGEST_WAIT)


def _event(job: Job, page: LogPage) -> bytes:
    """One event for a batch of lines: whoever has its id has all of them."""
    lines = msgspec.json.encode([line_document(job, line) for line in page.lines])
    return b"id: " + page.cursor.encode() + b"\ndata: " + lines + b"\n\n"


def _job(view: JobView) -> Response:
    return _json(job_document(view.job, view.replicas))


def _json(body: object) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")
