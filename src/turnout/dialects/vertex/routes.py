"""Vertex AI over HTTP: finds the handler, who asks and what is answered when something goes wrong, in one place.

Spoken to ASGI directly: addresses end with verbs behind a colon, and an encoded slash in one is no slash.
"""

import logging
from collections.abc import Mapping
from typing import NamedTuple

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from turnout.dialects.body import read_body
from turnout.dialects.vertex import (
    address,
    auth,
    entries,
    jobs,
    locations,
    oauth,
    operations,
    reply,
    tuning,
)
from turnout.dialects.vertex.address import Address
from turnout.dialects.vertex.house import Call, Handler, House
from turnout.errors import NotFound, TurnoutError

BODY_LIMIT = 10 << 20
FORM_LIMIT = 64 << 10
TOO_LARGE = "Request payload size exceeds the limit: {limit} bytes."
LIST_QUERY = ("filter", "pageSize", "pageToken", "readMask")
OPERATIONS_QUERY = ("filter", "pageSize", "pageToken", "returnPartialSuccess")
LOCATIONS_QUERY = ("filter", "pageSize", "pageToken", "extraLocationTypes")

log = logging.getLogger(__name__)


class _Route(NamedTuple):
    handler: Handler
    query: tuple[str, ...] = ()


_Routes = dict[tuple[str, str], _Route]
"""By method and verb."""

_JOBS: _Routes = {("GET", ""): _Route(jobs.list_jobs, LIST_QUERY), ("POST", ""): _Route(jobs.create)}
_JOB: _Routes = {
    ("GET", ""): _Route(jobs.get),
    ("DELETE", ""): _Route(jobs.delete),
    ("POST", "cancel"): _Route(jobs.cancel),
}
_TUNING_JOBS: _Routes = {
    ("GET", ""): _Route(tuning.list_jobs, LIST_QUERY),
    ("POST", ""): _Route(tuning.create),
}
_TUNING_JOB: _Routes = {
    ("GET", ""): _Route(tuning.get),
    ("DELETE", ""): _Route(tuning.delete),
    ("POST", "cancel"): _Route(tuning.cancel),
}
_STUDY_TRIALS: _Routes = {("POST", "listOptimalTrials"): _Route(tuning.list_optimal)}
_OPERATIONS: _Routes = {("GET", ""): _Route(operations.list_operations, OPERATIONS_QUERY)}
_OPERATION: _Routes = {
    ("GET", ""): _Route(operations.get),
    ("DELETE", ""): _Route(operations.forget),
    ("POST", "cancel"): _Route(operations.forget),
    ("POST", "wait"): _Route(operations.get, ("timeout",)),
}
_LOCATIONS: _Routes = {("GET", ""): _Route(locations.list_locations, LOCATIONS_QUERY)}
_LOCATION: _Routes = {("GET", ""): _Route(locations.get)}


class Endpoint:
    def __init__(self, house: House) -> None:
        self._house = house

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._answer(scope, receive)
        except TurnoutError as error:
            response = reply.refusal(error)
        except Exception as error:  # no traceback may reach a user
            log.error("%s %s failed", scope["method"], scope["path"], exc_info=error)
            response = reply.refusal(
                TurnoutError("Internal error encountered; the server's log has the details.")
            )
        if response is not None:
            await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response | None:
        """None when the client went away in the middle of its request."""
        house, headers, path = self._house, dict(scope["headers"]), scope["path"]
        if path == address.TOKEN:
            form = await read_body(headers, receive, FORM_LIMIT, too_large=TOO_LARGE)
            return (
                None if form is None else oauth.token(house, scope["method"], form, _origin(scope, headers))
            )
        if path == address.ENTRIES:
            return await self._entries(scope, headers, receive)
        raw = scope.get("raw_path") or path.encode()
        asked = address.parse(raw)
        route = _find(scope["method"], path, asked)
        assert asked is not None
        holder = auth.holder(house, headers)
        caller = await auth.caller(house, holder, asked.project)
        query = address.read_query(scope["query_string"], route.query)
        body = await read_body(headers, receive, BODY_LIMIT, too_large=TOO_LARGE)
        if body is None:
            return None
        call = Call(
            caller, asked.version, asked.location, asked.resource, query.values, body, query.numbers,
            _origin(scope, headers),
        )  # fmt: skip
        return await route.handler(house, call)

    async def _entries(
        self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive
    ) -> Response | None:
        if scope["method"] != "POST":
            raise _nothing(scope["method"], scope["path"], ["POST"])
        holder = auth.holder(self._house, headers)
        address.read_query(scope["query_string"], ())
        body = await read_body(headers, receive, BODY_LIMIT, too_large=TOO_LARGE)
        return None if body is None else await entries.list_entries(self._house, holder, body)


def _find(method: str, path: str, asked: Address | None) -> _Route:
    """Raises NotFound, also where the address has another method."""
    routes = _routes(asked) if asked else {}
    if asked is None or not any(verb == asked.verb for _, verb in routes):
        raise _nothing(method, path, [])
    route = routes.get((method, asked.verb))
    if route is None:
        raise _nothing(method, path, sorted(method for method, verb in routes if verb == asked.verb))
    return route


def _routes(asked: Address) -> _Routes:
    match asked.resource:
        case ("locations",) if not asked.location:
            return _LOCATIONS
        case ():
            return _LOCATION
        case (*_, "operations"):
            return _OPERATIONS
        case (*_, "operations", _):
            return _OPERATION
        case _ if asked.version == "ui":
            return {}
        case ("customJobs",):
            return _JOBS
        case ("customJobs", _):
            return _JOB
        case ("hyperparameterTuningJobs",):
            return _TUNING_JOBS
        case ("hyperparameterTuningJobs", _):
            return _TUNING_JOB
        case ("studies", _, "trials"):
            return _STUDY_TRIALS
        case _:
            return {}


def _nothing(method: str, path: str, methods: list[str]) -> NotFound:
    there = (
        f"; {' and '.join(methods)} can be" if methods else "; custom jobs are at customJobs of a location"
    )
    return NotFound(f"{method} {path[:300]} is not something that can be called here{there}.")


def _origin(scope: Scope, headers: Mapping[bytes, bytes]) -> str:
    host = headers.get(b"host", b"").decode("latin-1")
    if not host:
        name, port = scope["server"]
        host = f"{name}:{port}"
    return f"{scope['scheme']}://{host}"
