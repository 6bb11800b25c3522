"""TensorBoard resources, their experiments, runs and time series."""

from typing import Any

from starlette.responses import Response

from turnout.dialects import Context
from turnout.dialects.vertex import operations, reply, resource_list, resource_store
from turnout.dialects.vertex.call import Call
from turnout.dialects.vertex.custom_jobs import validate
from turnout.dialects.vertex.document_filter import Fields, field
from turnout.dialects.vertex.job_list import in_form
from turnout.dialects.vertex.protobuf import codec
from turnout.dialects.vertex.protobuf.codec import Decoded
from turnout.dialects.vertex.resource_store import BASE_FIELDS, Kind, find, render, shown
from turnout.dialects.vertex.tensorboards import points
from turnout.dialects.vertex.tensorboards.wire import (
    BatchCreateRunsRequest,
    BatchCreateTimeSeriesRequest,
    BatchResponse,
    Tensorboard,
    TensorboardExperiment,
    TensorboardRun,
    TensorboardTimeSeries,
    ValueType,
)
from turnout.errors import Invalid

_FIELDS: Fields = {
    **BASE_FIELDS,
    "is_default": ("bool", field("isDefault")),
    "source": ("text", field("source")),
    "value_type": ("text", field("valueType")),
    "plugin_name": ("text", field("pluginName")),
}
SERIES = Kind(
    "TensorboardTimeSeries", "timeSeries", TensorboardTimeSeries, "tensorboardTimeSeriesId", fields=_FIELDS,
    changeable=("displayName", "description", "pluginName", "pluginData"), listed="tensorboardTimeSeries",
)  # fmt: skip
RUN = Kind(
    "TensorboardRun",
    "runs",
    TensorboardRun,
    "tensorboardRunId",
    True,
    _FIELDS,
    (SERIES,),
    listed="tensorboardRuns",
)
EXPERIMENT = Kind(
    "TensorboardExperiment",
    "experiments",
    TensorboardExperiment,
    "tensorboardExperimentId",
    True,
    _FIELDS,
    (RUN,),
)
TENSORBOARD = Kind(
    "Tensorboard", "tensorboards", Tensorboard, fields=_FIELDS, children=(EXPERIMENT,),
    changeable=("displayName", "description", "labels", "isDefault"),
)  # fmt: skip
LEVELS = (TENSORBOARD, EXPERIMENT, RUN, SERIES)
"""By the number of pairs in an address."""


async def create(context: Context, call: Call) -> Response:
    kind, parent = _kind(call)
    asset = await resource_store.create(context, call, kind, parent, _check)
    if kind is TENSORBOARD:
        return await _operation(context, call, asset, "CreateTensorboard")
    return resource_store.respond(call, kind, asset)


async def get(context: Context, call: Call) -> Response:
    return await resource_store.get(context, call, _kind(call)[0])


async def list_resources(context: Context, call: Call) -> Response:
    kind, parent = _kind(call)
    return await resource_store.list_page(context, call, kind, parent)


async def patch(context: Context, call: Call) -> Response:
    kind, _ = _kind(call)
    asset = await resource_store.patch(context, call, kind)
    if kind is TENSORBOARD:
        return await _operation(context, call, asset, "UpdateTensorboard")
    return resource_store.respond(call, kind, asset)


async def delete(context: Context, call: Call) -> Response:
    """With everything in it, points included."""
    kind, _ = _kind(call)
    if kind is not SERIES:
        await _delete_points(context, call, kind, (await find(context, call, kind, call.resource)).id)
    return await resource_store.delete(context, call, kind)


async def batch_create_runs(context: Context, call: Call) -> Response:
    request, path = codec.decode(call.body, BatchCreateRunsRequest, "batch_create_tensorboard_runs_request")
    await find(context, call, EXPERIMENT, call.resource[:-1])
    scope = resource_store.scope_of(call, call.resource[:-1])
    made: list[dict[str, Any]] = []
    for index, one in enumerate(request.requests):
        run = one.tensorboard_run or TensorboardRun()
        _check(Decoded(run, path / "requests" / index / "tensorboardRun"))
        asset = await resource_store.insert(
            context, call, RUN, scope, codec.encode(run), one.tensorboard_run_id
        )
        made.append(shown(render(asset, RUN)))
    return reply.json(in_form(call, {"tensorboardRuns": made} if made else {}, BatchResponse))


async def batch_create_series(context: Context, call: Call) -> Response:
    """The parent of each request is a run of the experiment in the address."""
    request, path = codec.decode(
        call.body, BatchCreateTimeSeriesRequest, "batch_create_tensorboard_time_series_request"
    )
    made: list[dict[str, Any]] = []
    for index, one in enumerate(request.requests):
        at = path / "requests" / index
        run = run_resource(call, one.parent, (at / "parent").as_sent)
        await find(context, call, RUN, run)
        series = one.tensorboard_time_series or TensorboardTimeSeries()
        _check(Decoded(series, at / "tensorboardTimeSeries"))
        scope = resource_store.scope_of(call, run)
        given = one.tensorboard_time_series_id
        asset = await resource_store.insert(context, call, SERIES, scope, codec.encode(series), given)
        made.append(shown(render(asset, SERIES)))
    return reply.json(in_form(call, {"tensorboardTimeSeries": made} if made else {}, BatchResponse))


def run_resource(call: Call, name: str, field_name: str) -> tuple[str, ...]:
    """A run of the experiment in the address, by its full name. Raises Invalid."""
    resource = tuple(name.split("/")[4:])
    if len(resource) != 6 or resource[:4] != call.resource[:4] or resource[4] != "runs":
        raise Invalid(
            f"{field_name}: it must be a run of {call.parent}/{'/'.join(call.resource[:4])}.",
            field=field_name,
        )
    return resource


def _kind(call: Call) -> tuple[Kind, Kind | None]:
    """The kind that the address names, and that of its parent."""
    level = (len(call.resource) - 1) // 2
    return LEVELS[level], LEVELS[level - 1] if level else None


def _check(decoded: Decoded[Any]) -> None:
    path = decoded.path
    message: Tensorboard | TensorboardExperiment | TensorboardRun | TensorboardTimeSeries = decoded.message
    if isinstance(message, TensorboardTimeSeries):
        if message.value_type is ValueType.VALUE_TYPE_UNSPECIFIED:
            raise (path / "valueType").missing()
        if message.value_type is ValueType.BLOB_SEQUENCE:
            raise (path / "valueType").invalid("blobs are not stored here: use SCALAR or TENSOR.")
    if not isinstance(message, TensorboardExperiment):
        validate.display_name(message.display_name, path / "displayName")
    if not isinstance(message, TensorboardTimeSeries):
        validate.labels(message.labels, path / "labels")


async def _delete_points(context: Context, call: Call, kind: Kind, asset_id: str) -> None:
    if kind is RUN:
        return await points.delete(context, call, asset_id)
    for child in kind.children:
        async for assets in resource_list.pieces(context, call, child.asset, asset_id):
            for one in assets:
                await _delete_points(context, call, child, one.id)
    return None


async def _operation(context: Context, call: Call, asset: Any, name: str) -> Response:
    done = await operations.finished(
        context, call, "Tensorboard", render(asset, TENSORBOARD), metadata=f"{name}OperationMetadata"
    )
    return reply.json(done)
