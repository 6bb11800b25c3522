"""Writes and reads the points of time series."""

import math
from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from turnout.dialects import Context
from turnout.dialects.vertex import paging, reply
from turnout.dialects.vertex.call import Call
from turnout.dialects.vertex.job_list import in_form
from turnout.dialects.vertex.protobuf import codec
from turnout.dialects.vertex.protobuf.field_path import FieldPath
from turnout.dialects.vertex.protobuf.times import spell_time
from turnout.dialects.vertex.resource_list import stored
from turnout.dialects.vertex.resource_store import find, scope_of
from turnout.dialects.vertex.tensorboards import points
from turnout.dialects.vertex.tensorboards.handlers import RUN, SERIES, run_resource
from turnout.dialects.vertex.tensorboards.points import Point
from turnout.dialects.vertex.tensorboards.wire import (
    BatchReadResponse,
    ExportRequest,
    ReadResponse,
    TimeSeriesData,
    TimeSeriesDataPoint,
    WriteExperimentDataRequest,
    WriteRunDataRequest,
)
from turnout.errors import Invalid

MAX_WRITTEN = 10_000
"""Points in one write."""
MAX_READ = 10_000
"""Points of a time series in one read; of more, an even sample with the first and the last."""


async def write_run(context: Context, call: Call) -> Response:
    request, path = codec.decode(call.body, WriteRunDataRequest, "write_tensorboard_run_data_request")
    await _write(context, call, call.resource, request.time_series_data, path / "timeSeriesData")
    return reply.empty()


async def write_experiment(context: Context, call: Call) -> Response:
    """Writes run by run: if one write fails, those before it stay stored."""
    request, path = codec.decode(
        call.body, WriteExperimentDataRequest, "write_tensorboard_experiment_data_request"
    )
    for index, one in enumerate(request.write_run_data_requests):
        at = path / "writeRunDataRequests" / index
        run = run_resource(call, one.tensorboard_run, (at / "tensorboardRun").as_sent)
        await _write(context, call, run, one.time_series_data, at / "timeSeriesData")
    return reply.empty()


async def read(context: Context, call: Call) -> Response:
    series = stored(await find(context, call, SERIES, call.resource))
    most = _count(call.query.get("maxDataPoints", ""), "maxDataPoints") or MAX_READ
    found = await _points(context, call, call.resource[:-2])
    data = _data(call.resource[-1], series["valueType"], found.get(call.resource[-1], []), most)
    return reply.json(in_form(call, {"timeSeriesData": data}, ReadResponse))


async def batch_read(context: Context, call: Call) -> Response:
    """`timeSeries`: the full names of the time series."""
    names = [name for name in call.query.get("timeSeries", "").split(",") if name]
    if not names:
        raise Invalid("timeSeries is required.", field="timeSeries")
    prefix = f"{call.parent}/{'/'.join(call.resource)}/"
    runs: dict[tuple[str, ...], dict[str, list[Point]]] = {}
    read: list[dict[str, Any]] = []
    for name in names:
        resource = tuple(name.split("/")[4:])
        if not name.startswith(prefix) or len(resource) != 8:
            raise Invalid(f"timeSeries: {name[:300]!r} must be below {prefix}", field="timeSeries")
        series = stored(await find(context, call, SERIES, resource))
        run = resource[:-2]
        if run not in runs:
            runs[run] = await _points(context, call, run)
        read.append(_data(resource[-1], series["valueType"], runs[run].get(resource[-1], []), MAX_READ))
    return reply.json(in_form(call, {"timeSeriesData": read}, BatchReadResponse))


async def export(context: Context, call: Call) -> Response:
    """All points, page by page."""
    options = codec.decode(call.body, ExportRequest, "export_tensorboard_time_series_data_request").message
    if options.filter or options.order_by:
        raise Invalid("filter and orderBy are not supported: the points come in the order of their steps.")
    await find(context, call, SERIES, call.resource)
    listing = paging.Listing(call.caller.project, scope_of(call, call.resource))
    secret = context.keys.root.secret.encode()
    size = paging.page_size(str(options.page_size or ""))
    start = paging.read_token(secret, listing, options.page_token) or 0
    found = (await _points(context, call, call.resource[:-2])).get(call.resource[-1], [])
    page: dict[str, Any] = {"timeSeriesDataPoints": [_point(one) for one in found[start : start + size]]}
    if len(found) > start + size:
        page["nextPageToken"] = paging.make_token(secret, listing, start + size)
    return reply.json(in_form(call, page, ReadResponse))


async def _write(
    context: Context, call: Call, run: tuple[str, ...], data: Sequence[TimeSeriesData], path: FieldPath
) -> None:
    asset = await find(context, call, RUN, run)
    written: list[Point] = []
    for index, one in enumerate(data):
        at = path / index
        if not one.tensorboard_time_series_id:
            raise (at / "tensorboardTimeSeriesId").missing()
        series = (*run, SERIES.collection, one.tensorboard_time_series_id)
        kind = stored(await find(context, call, SERIES, series))["valueType"]
        if one.value_type and one.value_type.name != kind:
            raise (at / "valueType").invalid(f"the time series has values of the type {kind}.")
        for number, point in enumerate(one.values):
            value = _value(point, kind, at / "values" / number)
            written.append(
                (one.tensorboard_time_series_id, point.step, spell_time(point.wall_time or 0), value)
            )
    if len(written) > MAX_WRITTEN:
        raise path.invalid(f"there are {len(written)} points; at most {MAX_WRITTEN} are allowed.")
    if written:
        await points.append(context, call, asset.id, written)


def _value(point: TimeSeriesDataPoint, kind: str, path: FieldPath) -> Any:
    if kind == "SCALAR":
        if point.scalar is None:
            raise (path / "scalar").missing()
        value = point.scalar.value
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if point.tensor is None:
        raise (path / "tensor").missing()
    return codec.encode(point.tensor)


async def _points(context: Context, call: Call, run: tuple[str, ...]) -> dict[str, list[Point]]:
    """By the id of the time series, in the order of steps. If a step was written twice, the last value counts."""
    found: dict[str, dict[int, Point]] = {}
    async for point in points.read(context, call, scope_of(call, run)):
        found.setdefault(point[0], {})[point[1]] = point
    return {series: [steps[step] for step in sorted(steps)] for series, steps in found.items()}


def _data(series: str, kind: str, found: Sequence[Point], most: int) -> dict[str, Any]:
    return {
        "tensorboardTimeSeriesId": series,
        "valueType": kind,
        "values": [_point(one) for one in _sample(found, most)],
    }


def _sample(found: Sequence[Point], most: int) -> Sequence[Point]:
    if len(found) <= most:
        return found
    if most == 1:
        return found[-1:]
    return [found[index * (len(found) - 1) // (most - 1)] for index in range(most)]


def _point(point: Point) -> dict[str, Any]:
    _, step, at, value = point
    held = {"tensor": value} if isinstance(value, dict) else {"scalar": {"value": value}}
    return {"wallTime": at, **({"step": str(step)} if step else {}), **held}


def _count(text: str, name: str) -> int:
    if text and not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise Invalid(f"{name}: {text[:100]!r} must be a whole number of at least 1.", field=name)
    return int(text or 0)
