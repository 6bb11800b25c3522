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
from turnout.dialects import Context, Conversion
from turnout.dialects.vertex import address, convert, locations, operations, reply
from turnout.dialects.vertex.account import bearer, oauth
from turnout.dialects.vertex.address import Address
from turnout.dialects.vertex.call import Call, Handler
from turnout.dialects.vertex.cloud_logging import handlers as cloud_logging
from turnout.dialects.vertex.custom_jobs import handlers as custom_jobs
from turnout.dialects.vertex.metadata import handlers as metadata
from turnout.dialects.vertex.models import handlers as models
from turnout.dialects.vertex.models.export import export as export_model
from turnout.dialects.vertex.persistent_resources import handlers as persistent_resources
from turnout.dialects.vertex.pipelines import handlers as pipelines
from turnout.dialects.vertex.pipelines.uploads import ModelUploads
from turnout.dialects.vertex.protobuf import codec
from turnout.dialects.vertex.tensorboards import data as time_series
from turnout.dialects.vertex.tensorboards import handlers as tensorboards
from turnout.dialects.vertex.translate import DIALECT
from turnout.dialects.vertex.tuning import handlers as tuning
from turnout.dialects.vertex.tuning.trials import trial_job
from turnout.errors import NotFound, TurnoutError
from turnout.job import Job, NewJob, Trial
from turnout.service import Caller, JobView, calls, while_connected

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
_PIPELINES: _Routes = {
    ("GET", ""): _Route(pipelines.list_pipelines, LIST_QUERY),
    ("POST", ""): _Route(pipelines.create),
}
_PIPELINE: _Routes = {
    ("GET", ""): _Route(pipelines.get),
    ("DELETE", ""): _Route(pipelines.delete),
    ("POST", "cancel"): _Route(pipelines.cancel),
}
_MODELS: _Routes = {
    ("GET", ""): _Route(models.list_models, (*LIST_QUERY, "orderBy")),
    ("POST", "upload"): _Route(models.upload),
    ("POST", "copy"): _Route(models.copy),
}
_MODEL: _Routes = {
    ("GET", ""): _Route(models.get),
    ("PATCH", ""): _Route(models.patch, ("updateMask",)),
    ("DELETE", ""): _Route(models.delete),
    ("GET", "listVersions"): _Route(models.list_versions, (*LIST_QUERY, "orderBy")),
    ("DELETE", "deleteVersion"): _Route(models.delete_version),
    ("POST", "export"): _Route(export_model),
    ("POST", "mergeVersionAliases"): _Route(models.merge_aliases),
}
_RESOURCE_LIST = (*LIST_QUERY, "orderBy")
_STORES: _Routes = {
    ("GET", ""): _Route(metadata.list_stores, LIST_QUERY),
    ("POST", ""): _Route(metadata.create_store, ("metadataStoreId",)),
}
_STORE: _Routes = {
    ("GET", ""): _Route(metadata.get_store),
    ("DELETE", ""): _Route(metadata.delete_store, ("force",)),
}
_NODES: _Routes = {
    ("GET", ""): _Route(metadata.list_nodes, _RESOURCE_LIST),
    ("POST", ""): _Route(metadata.create, ("contextId", "executionId", "artifactId")),
}
_NODE: _Routes = {
    ("GET", ""): _Route(metadata.get),
    ("PATCH", ""): _Route(metadata.patch, ("updateMask",)),
    ("DELETE", ""): _Route(metadata.delete, ("force",)),
}
_CONTEXT: _Routes = _NODE | {
    ("POST", "addContextChildren"): _Route(metadata.add_children),
    ("POST", "removeContextChildren"): _Route(metadata.remove_children),
    ("POST", "addContextArtifactsAndExecutions"): _Route(metadata.add_members),
    ("GET", "queryContextLineageSubgraph"): _Route(metadata.query_context),
}
_EXECUTION: _Routes = _NODE | {
    ("POST", "addExecutionEvents"): _Route(metadata.add_events),
    ("GET", "queryExecutionInputsAndOutputs"): _Route(metadata.query_execution),
}
_ARTIFACT: _Routes = _NODE | {("GET", "queryArtifactLineageSubgraph"): _Route(metadata.query_artifact)}
_BOARD_LEVELS: _Routes = {
    ("GET", ""): _Route(tensorboards.list_resources, _RESOURCE_LIST),
    ("POST", ""): _Route(
        tensorboards.create, ("tensorboardExperimentId", "tensorboardRunId", "tensorboardTimeSeriesId")
    ),
}
_BOARD_LEVEL: _Routes = {
    ("GET", ""): _Route(tensorboards.get),
    ("PATCH", ""): _Route(tensorboards.patch, ("updateMask",)),
    ("DELETE", ""): _Route(tensorboards.delete),
}
_BOARD: _Routes = _BOARD_LEVEL | {("GET", "batchRead"): _Route(time_series.batch_read, ("timeSeries",))}
_BOARD_EXPERIMENT: _Routes = _BOARD_LEVEL | {
    ("POST", "write"): _Route(time_series.write_experiment),
    ("POST", "batchCreate"): _Route(tensorboards.batch_create_series),
}
_BOARD_RUNS: _Routes = _BOARD_LEVELS | {("POST", "batchCreate"): _Route(tensorboards.batch_create_runs)}
_BOARD_RUN: _Routes = _BOARD_LEVEL | {("POST", "write"): _Route(time_series.write_run)}
_TIME_SERIES: _Routes = _BOARD_LEVEL | {
    ("GET", "read"): _Route(time_series.read, ("maxDataPoints",)),
    ("POST", "exportTensorboardTimeSeries"): _Route(time_series.export),
}
_PERSISTENT_RESOURCES: _Routes = {
    ("GET", ""): _Route(persistent_resources.list_resources, LIST_QUERY),
    ("POST", ""): _Route(persistent_resources.create, ("persistentResourceId",)),
}
_PERSISTENT_RESOURCE: _Routes = {
    ("GET", ""): _Route(persistent_resources.get),
    ("DELETE", ""): _Route(persistent_resources.delete),
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

_UNRECORDED_VERBS = frozenset({"exportTensorboardTimeSeries", "listOptimalTrials", "wait", "write"})
"""Verbs of POST that only read, and the points of time series, of which a program writes many."""

_INSTEAD = {
    "pipelineJobs": "run each step as a CustomJob (customJobs)",
    "batchPredictionJobs": "run the prediction as the program of a CustomJob (customJobs)",
    "endpoints": "models are not served yet: load the model's artifacts in a program of your own",
    "datasets": "there are no managed datasets: let the program read the files of the bucket below /gcs/<bucket>",
    "nasJobs": "use a HyperparameterTuningJob (hyperparameterTuningJobs)",
    "studies": "use a HyperparameterTuningJob (hyperparameterTuningJobs)",
}
"""The advice for resources of Vertex that Turnout does not have."""
_OTHERWISE = (
    "this service has the customJobs, hyperparameterTuningJobs, trainingPipelines and models of a location"
)


class Vertex:
    name = DIALECT
    conversion = Conversion(convert.portable, convert.convert)

    def __init__(self, context: Context) -> None:
        self._context = context
        self._uploads = ModelUploads(context)

    def owns(self, scope: Scope) -> bool:
        return address.owns(scope["path"])

    def make_trial_job(self, parent: JobView, trial: Trial) -> NewJob:
        return trial_job(parent, trial, self._context.settings, self._context.images)

    async def submit(self, caller: Caller, body: bytes, location: str) -> Job:
        """Creates a custom job, a tuning job or a training pipeline, whichever the document describes."""
        address.check_location(location)
        call = Call(caller, "v1", location, (), {}, body, numbers=False, origin="")
        if codec.has_field(body, "trainingTaskDefinition", "training_task_definition"):
            view = await pipelines.submit(self._context, call)
            self._uploads.look()
        elif codec.has_field(body, "studySpec", "study_spec"):
            view = await tuning.submit(self._context, call)
        else:
            view = await custom_jobs.submit(self._context, call)
        return view.job

    async def run(self) -> None:
        await self._uploads.run()

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
        calls.identify(
            caller.key, caller.project, changes=False if parsed.verb in _UNRECORDED_VERBS else None
        )
        query = address.read_query(scope["query_string"], route.query)
        arrived = scope.get(bodies.ARRIVED, False)
        with context.bodies.open(bodies.known(caller.project)) as reservation:
            body = await read_body(
                reservation, headers, receive, BODY_LIMIT, arrived=arrived, too_large=TOO_LARGE
            )
            if body is None:
                return None
            call = Call(
                caller, parsed.version, parsed.location, parsed.resource, query.values, body, query.numbers,
                _origin(scope, headers),
            )  # fmt: skip
            response = await route.handler(context, call)
        if route.handler is pipelines.create:
            self._uploads.look()
        return response

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
    routes = routes_of(parsed) if parsed else {}
    if parsed is None or not any(verb == parsed.verb for _, verb in routes):
        resource = parsed.resource[0] if parsed and parsed.resource else ""
        raise _no_such_call(method, path, [], _INSTEAD.get(resource, _OTHERWISE))
    route = routes.get((method, parsed.verb))
    if route is None:
        raise _no_such_call(method, path, sorted(method for method, verb in routes if verb == parsed.verb))
    return route


def routes_of(parsed: Address) -> _Routes:
    """The calls that an address has."""
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
        case ("trainingPipelines",):
            return _PIPELINES
        case ("trainingPipelines", _):
            return _PIPELINE
        case ("models",):
            return _MODELS
        case ("models", _):
            return _MODEL
        case ("metadataStores",):
            return _STORES
        case ("metadataStores", _):
            return _STORE
        case ("metadataStores", _, "contexts" | "executions" | "artifacts"):
            return _NODES
        case ("metadataStores", _, "contexts", _):
            return _CONTEXT
        case ("metadataStores", _, "executions", _):
            return _EXECUTION
        case ("metadataStores", _, "artifacts", _):
            return _ARTIFACT
        case ("tensorboards",) | ("tensorboards", _, "experiments"):
            return _BOARD_LEVELS
        case ("tensorboards", _):
            return _BOARD
        case ("tensorboards", _, "experiments", _):
            return _BOARD_EXPERIMENT
        case ("tensorboards", _, "experiments", _, "runs"):
            return _BOARD_RUNS
        case ("tensorboards", _, "experiments", _, "runs", _):
            return _BOARD_RUN
        case ("tensorboards", _, "experiments", _, "runs", _, "timeSeries"):
            return _BOARD_LEVELS
        case ("tensorboards", _, "experiments", _, "runs", _, "timeSeries", _):
            return _TIME_SERIES
        case ("persistentResources",):
            return _PERSISTENT_RESOURCES
        case ("persistentResources", _):
            return _PERSISTENT_RESOURCE
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
