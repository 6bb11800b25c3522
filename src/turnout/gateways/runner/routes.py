"""The addresses that runners call. All calls except two need the token of their attempt."""

import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from turnout import errors, pools
from turnout.bodies import WINDOW, Bodies, known, read_body, uploading
from turnout.engines.remote import RunnerCalls
from turnout.engines.remote.records import Arrival
from turnout.engines.remote.runner_calls import POLL_SECONDS, Caller, Ending, Fenced, Gone, NotPlaced
from turnout.gateways.runner import wire
from turnout.gateways.runner.wire import decode
from turnout.job import Attempt
from turnout.service.download import Download

PREFIX = "/runner/v1/"

_ATTEMPT = re.compile(r"[0-9]{1,19}\.[0-9]{1,9}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_INSTANCE = re.compile(r"[0-9a-f]{16,64}")
_MOST_DOCUMENT = 1 << 20
_MOST_OUTPUT = 64 << 10
_STATUSES: dict[type[errors.TurnoutError], int] = {
    Gone: 410,
    Fenced: 409,
    NotPlaced: 503,
    errors.Unauthenticated: 401,
    errors.Denied: 403,
    errors.NotFound: 404,
    errors.Invalid: 400,
    errors.Unsupported: 400,
    errors.TooLarge: 413,
    errors.Busy: 429,
}
"""Others are 503: the runner tries again."""

_log = logging.getLogger(__name__)

Handler = Callable[[RunnerCalls, Caller, Request], Awaitable[Any]]


def app(clusters: Iterable[RunnerCalls], bodies: Bodies) -> ASGIApp:
    """`clusters`: the calls of each remote engine."""
    gateway = _Gateway(tuple(clusters), bodies)
    one = PREFIX + "{attempt}/{replica}/"
    return Starlette(
        routes=[
            Route(PREFIX + "ping", gateway.ping),
            Route(PREFIX + "{digest}.pyz", gateway.archive),
            Route(one + "objects/{number:int}/{key:path}", gateway.get_object, methods=["GET"]),
            Route(one + "objects/{number:int}/{key:path}", gateway.put_object, methods=["PUT"]),
            Route(one + "shell/{terminal}/{direction}", gateway.shell, methods=["POST"]),
            Route(one + "{call}", gateway.call, methods=["POST"]),
        ]
    )


def _guarded(endpoint: Callable[["_Gateway", Request], Awaitable[Response]]) -> Any:
    async def guarded(self: "_Gateway", request: Request) -> Response:
        try:
            return await endpoint(self, request)
        except ClientDisconnect:
            return Response(status_code=400)
        except errors.TurnoutError as error:
            status = next((code for kind, code in _STATUSES.items() if isinstance(error, kind)), 503)
            return _json({"error": error.message}, status)
        except OSError as error:
            _log.error("a runner's call failed: %s", error)
            return _json({"error": f"the service cannot store this now: {error.strerror}"}, 503)

    return guarded


class _Gateway:
    def __init__(self, clusters: tuple[RunnerCalls, ...], bodies: Bodies) -> None:
        self._clusters = clusters
        self._bodies = bodies
        self._calls: dict[str, Callable[[RunnerCalls, Caller, bytes], Awaitable[Any]]] = {
            "claim": self._claim,
            "arrive": self._arrive,
            "started": self._started,
            "tell": self._tell,
            "wait": self._wait,
            "ended": self._ended,
            "stage": self._stage,
            "saved": self._saved,
        }

    async def ping(self, request: Request) -> Response:
        """For `turnout cluster check`: whether a node reaches the service."""
        return _json({"turnout": True})

    async def archive(self, request: Request) -> Response:
        """Also that of an earlier version of Turnout: a gang may have waited in the cluster's queue for long."""
        digest = request.path_params["digest"]
        directory = Path(self._clusters[0].archive[0]).parent
        path = directory / f"runner-{digest}.pyz"
        if not _DIGEST.fullmatch(digest) or not await pools.disk.run(pools.OWN, path.is_file):
            return _json({"error": "there is no such runner"}, 404)
        return FileResponse(path, media_type="application/zip")

    @_guarded
    async def call(self, request: Request) -> Response:
        calls, caller = self._caller(request)
        handle = self._calls.get(request.path_params["call"])
        if handle is None:
            raise errors.NotFound(f"there is no call {request.path_params['call']!r}")
        body = await self._body(request, caller, wire.LARGEST)
        return _json(await handle(calls, caller, body))

    def _caller(self, request: Request) -> tuple[RunnerCalls, Caller]:
        text, replica = request.path_params["attempt"], request.path_params["replica"]
        instance = request.headers.get("x-turnout-runner", "")
        if not _ATTEMPT.fullmatch(text) or not _INSTANCE.fullmatch(instance):
            raise errors.NotFound("there is no such attempt, or the header X-Turnout-Runner is missing")
        attempt = Attempt.parse(text)
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        calls = next((one for one in self._clusters if one.holds(attempt)), None)
        if calls is None:
            raise Gone(f"there is no attempt {attempt}")
        return calls, calls.find(attempt, replica, token, instance)

    async def _body(self, request: Request, caller: Caller, limit: int) -> bytes:
        with self._bodies.open(known(caller.project)) as reservation:
            body = await read_body(reservation, dict(request.scope["headers"]), request.receive, limit)
        if body is None:
            raise ClientDisconnect
        return body

    async def _claim(self, calls: RunnerCalls, caller: Caller, body: bytes) -> Any:
        claim = decode(body, wire.Claim)
        return await calls.claim(caller, claim.engine_id, claim.node)

    async def _arrive(self, calls: RunnerCalls, caller: Caller, body: bytes) -> Any:
        return await calls.arrive(caller, decode(body, Arrival))

    async def _started(self, calls: RunnerCalls, caller: Caller, body: bytes) -> Any:
        start = decode(body, wire.Start)
        return await calls.started(caller, start.restarts, start.pid, start.at)

    async def _tell(self, calls: RunnerCalls, caller: Caller, body: bytes) -> Any:
        tell, pieces, marks = wire.decode_tell(body)
        return await calls.tell(caller, pieces, marks, tell.samples, tell.idle, tell.files)

    async def _wait(self, calls: RunnerCalls, caller: Caller, body: bytes) -> Any:
        return await calls.wait(caller, decode(body, wire.Wait).seen)

    async def _ended(self, calls: RunnerCalls, caller: Caller, body: bytes) -> Any:
        return await calls.ended(caller, decode(body, Ending))

    async def _saved(self, calls: RunnerCalls, caller: Caller, body: bytes) -> Any:
        saved = decode(body, wire.SavedReport)
        return await calls.saved(caller, saved.files, saved.bytes, saved.trouble)

    async def _stage(self, calls: RunnerCalls, caller: Caller, body: bytes) -> Any:
        calls.check_owner(caller)
        stage = decode(body, wire.Stage)
        launch, name = caller.attempt.launch, caller.member.name
        match stage.op:
            case "list":
                return await calls.transfers.page(launch, name, stage.mount, stage.after)
            case "put":
                objects = [(one.key, one.size) for one in stage.objects]
                return await calls.transfers.put(launch, name, stage.mount, objects)
            case _:
                raise errors.Invalid(f"op must be list or put, not {stage.op!r}")

    @_guarded
    async def get_object(self, request: Request) -> Response:
        calls, caller = self._caller(request)
        calls.check_owner(caller)
        number, key = request.path_params["number"], request.path_params["key"]
        wanted = request.headers.get("range", "")
        opened = await calls.transfers.read(caller.attempt.launch, number, key, wanted)
        size = opened.end - opened.start
        headers = {"Content-Length": str(size), "ETag": f'"{opened.info.etag}"'}
        whole = size == opened.info.size
        if not whole:
            headers["Content-Range"] = f"bytes {opened.start}-{opened.end - 1}/{opened.info.size}"
        return Download(opened.body, opened.close, 200 if whole else 206, headers)

    @_guarded
    async def put_object(self, request: Request) -> Response:
        calls, caller = self._caller(request)
        calls.check_owner(caller)
        number, key = request.path_params["number"], request.path_params["key"]
        with self._bodies.open(uploading(caller.project)) as reservation:
            await reservation.reserve(WINDOW)
            await calls.transfers.write(caller.attempt.launch, number, key, request.stream())
        return _json({})

    @_guarded
    async def shell(self, request: Request) -> Response:
        calls, caller = self._caller(request)
        terminal = calls.terminal(caller, request.path_params["terminal"])
        if request.path_params["direction"] == "input":
            after = decode(await self._body(request, caller, _MOST_DOCUMENT), wire.ShellInput).after
            found, after = await terminal.events(after, POLL_SECONDS)
            return _json({"events": found, "after": after})
        data = await self._body(request, caller, _MOST_OUTPUT)
        if data:
            offset = request.headers.get("x-turnout-offset", "")
            await terminal.put(data, int(offset) if offset.isdecimal() else 0)
        else:
            code = request.headers.get("x-exit-code", "")
            calls.terminal_ended(terminal, int(code) if code.isdecimal() else None)
        return _json({})


def _json(body: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")
