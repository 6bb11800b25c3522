"""The points of the time series of a run: appended to pieces, each an asset with a limited number of points.

A write is one change, however many time series it has. A point is (id of its series, step, wall time, value).
"""

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from turnout.dialects import Context
from turnout.dialects.vertex import resource_ids, resource_list
from turnout.dialects.vertex.call import Call
from turnout.errors import AlreadyExists, NotFound
from turnout.job import Asset

KIND = "vertex-tensorboard-points"
_IN_A_PIECE = 500
_BYTES_IN_A_PIECE = 1 << 20
"""Tensors are larger than numbers. A piece has at most one write more than these."""

Point = tuple[str, int, str, Any]
"""The value is a number, or the JSON of a tensor."""


class _Full(Exception):
    """The piece has no room."""


async def append(context: Context, call: Call, run: str, points: list[Point]) -> None:
    """`run`: the id of the run's asset."""
    number = await _last(context, call, run)
    while True:
        try:
            return await _append_to(context, call, run, number, points)
        except _Full:
            number += 1


async def read(context: Context, call: Call, run: str) -> AsyncIterator[Point]:
    """All points of a run, in the order of their writes."""
    found: list[Asset] = []
    async for assets in resource_list.pieces(context, call, KIND, run):
        found += assets
    for asset in reversed(found):
        for point in msgspec.json.decode(asset.document, type=list[Point]):
            yield point


async def delete(context: Context, call: Call, run: str) -> None:
    async for assets in resource_list.pieces(context, call, KIND, run):
        for one in assets:
            await context.assets.delete(call.caller, KIND, one.id)


async def _last(context: Context, call: Call, run: str) -> int:
    found = await context.assets.find(call.caller, KIND, scope=run, limit=1)
    return int(found[0].name) if found else 0


async def _append_to(context: Context, call: Call, run: str, number: int, points: list[Point]) -> None:
    """Raises _Full."""
    asset_id = f"{run}/{number}"

    def add(document: bytes) -> bytes:
        if len(document) >= _BYTES_IN_A_PIECE:
            raise _Full
        held = msgspec.json.decode(document)
        if len(held) >= _IN_A_PIECE:
            raise _Full
        return msgspec.json.encode(held + points)

    try:
        await context.assets.change(call.caller, KIND, asset_id, resource_ids.now(context), add)
    except NotFound:
        now = resource_ids.now(context)
        document = msgspec.json.encode(points)
        asset = Asset(call.caller.project, KIND, asset_id, run, str(number), now, now, document)
        try:
            await context.assets.create(call.caller, asset)
        except AlreadyExists:  # another write has made it meanwhile
            await _append_to(context, call, run, number, points)
