"""Vertex AI over HTTP: the table of calls, authentication, and the response to an error.

An ASGI application without Starlette's router: addresses end with a verb after a colon, and an encoded slash in a
segment does not separate segments.
"""

import logging
from collections.abc import Mapping
from typing import NamedTuple

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from turnout import bodies
from turnout.bodies import read_body
from turnout.dialects import Context
from turnout.dialects.vertex import address, locations, operations, reply
from turnout.dialects.vertex.account import bearer, oauth
from turnout.dialects.vertex.address import Address
from turnout.dialects.vertex.call import Call, Handler
from turnout.dialects.vertex.cloud_logging import handlers as cloud_logging
from turnout.dialects.vertex.custom_jobs import handlers as custom_jobs
from turnout.dialects.vertex.translate import DIALECT
from turnout.dialects.vertex.tuning import handlers as tuning
from turnout.dialects.vertex.tuning.trials import trial_job
from turnout.errors import NotFound, TurnoutError
from turnout.job import NewJob, Trial
from turnout.service import JobView, while_connected

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
"""(method, verb) → handler."""

_JOBS: _Routes = {
    ("GET", ""): _Route(custom_jobs.list_jobs, LIST_QUERY),
    ("POST", ""): _Route(custom_jobs.create),
}
_JOB: _Routes = {
    ("GET", ""): _Route(custom_jobs.get),
    ("DELETE", ""): _Route(custom_jobs.delete),
    ("POST", "cancel"): _Route(custom_jobs.cancel),
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
    ("DELETE", ""): _Route(operations.acknowledge),
    ("POST", "cancel"): _Route(operations.acknowledge),
    ("POST", "wait"): _Route(operations.get, ("timeout",)),
}
_LOCATIONS: _Routes = {("GET", ""): _Route(locations.list_locations, LOCATIONS_QUERY)}
_LOCATION: _Routes = {("GET", ""): _Route(locations.get)}

_INSTEAD = {
    "trainingPipelines": "use a CustomJob (customJobs, in Python aiplatform.CustomJob), which runs the same program",
    "pipelineJobs": "run each step as a CustomJob (customJobs)",
    "batchPredictionJobs": "run the prediction as the program of a CustomJob (customJobs)",
    "persistentResources": "submit a CustomJob (customJobs), which waits in the queue for its machines",
    "nasJobs": "use a HyperparameterTuningJob (hyperparameterTuningJobs)",
    "studies": "use a HyperparameterTuningJob (hyperparameterTuningJobs)",
}
"""The advice for resources of Vertex that Turnout does not have."""
_OTHERWISE = "this service has the customJobs and hyperparameterTuningJobs of a location"


class Vertex:
    name = DIALECT

    def __init__(self, context: Context) -> None:
        self._context = context

    def owns(self, scope: Scope) -> bool:
        return address.owns(scope["path"])

    def make_trial_job(self, parent: JobView, trial: Trial) -> NewJob:
        return trial_job(parent, trial, self._context.settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._respond(scope, receive)
        except TurnoutError as error:
            response = reply.error(error)
        except Exception as error:  # no traceback may reach a user
            log.error("%s %s failed", scope["method"], scope["path"], exc_info=error)
            response = reply.error(
                TurnoutError("Internal error encountered; the server's log has the details.")
            )
        if response is not None:
            await response(scope, receive, send)

    async def _respond(self, scope: Scope, receive: Receive) -> Response | None:
        """None if the client disconnected before the end of its request."""
        context, headers, path = self._context, dict(scope["headers"]), scope["path"]
        if path == address.TOKEN:
            with context.bodies.open(bodies.STRANGER) as reservation:
                form = await read_body(reservation, headers, receive, FORM_LIMIT, too_large=TOO_LARGE)
                origin = _origin(scope, headers)
                return None if form is None else oauth.issue_token(context, scope["method"], form, origin)
        if path == address.ENTRIES:
            return await self._list_entries(scope, headers, receive)
        raw = scope.get("raw_path") or path.encode()
        parsed = address.parse(raw)
        route = _find(scope["method"], path, parsed)
        assert parsed is not None
        principal = bearer.authenticate(context, headers)
        caller = await bearer.authorize(context, principal, parsed.project)
        query = address.read_query(scope["query_string"], route.query)
        with context.bodies.open(bodies.known(caller.project)) as reservation:
            body = await read_body(reservation, headers, receive, BODY_LIMIT, too_large=TOO_LARGE)
            if body is None:
                return None
            call = Call(
                caller, parsed.version, parsed.location, parsed.resource, query.values, body, query.numbers,
                _origin(scope, headers),
            )  # fmt: skip
            return await route.handler(context, call)

    async def _list_entries(
        self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive
    ) -> Response | None:
        if scope["method"] != "POST":
            raise _no_such_call(scope["method"], scope["path"], ["POST"])
        principal = bearer.authenticate(self._context, headers)
        address.read_query(scope["query_string"], ())
        with self._context.bodies.open(
            bodies.known(principal.project or principal.key.project)
        ) as reservation:
            body = await read_body(reservation, headers, receive, BODY_LIMIT, too_large=TOO_LARGE)
            if body is None:
                return None
            return await while_connected(receive, cloud_logging.list_entries(self._context, principal, body))


def _find(method: str, path: str, parsed: Address | None) -> _Route:
    """Raises NotFound, also if the address supports only other methods."""
    routes = _routes(parsed) if parsed else {}
    if parsed is None or not any(verb == parsed.verb for _, verb in routes):
        resource = parsed.resource[0] if parsed and parsed.resource else ""
        raise _no_such_call(method, path, [], _INSTEAD.get(resource, _OTHERWISE))
    route = routes.get((method, parsed.verb))
    if route is None:
        raise _no_such_call(method, path, sorted(method for method, verb in routes if verb == parsed.verb))
    return route


def _routes(parsed: Address) -> _Routes:
    match parsed.resource:
        case ("locations",) if not parsed.location:
            return _LOCATIONS
        case ():
            return _LOCATION
        case (*_, "operations"):
            return _OPERATIONS
        case (*_, "operations", _):
            return _OPERATION
        case _ if parsed.version == "ui":
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


def _no_such_call(method: str, path: str, methods: list[str], instead: str = "") -> NotFound:
    hint = f"use {' or '.join(methods)}" if methods else instead
    return NotFound(f"{method} {path[:300]} is not supported; {hint}.")


def _origin(scope: Scope, headers: Mapping[bytes, bytes]) -> str:
    host = headers.get(b"host", b"").decode("latin-1")
    if not host:
        name, port = scope["server"]
        host = f"{name}:{port}"
    return f"{scope['scheme']}://{host}"
