"""Pages of algorithms and experiments, which have the same query parameters."""

from typing import Any, Literal, NamedTuple

from starlette.requests import Request

from turnout.dialects.modelarts import fields
from turnout.dialects.modelarts.context import Context
from turnout.job import Asset
from turnout.service import Caller

_SORT_KEYS: dict[str, Literal["created", "updated", "name"]] = {
    "create_time": "created",
    "update_time": "updated",
    "name": "name",
}


class AssetPage(NamedTuple):
    assets: list[Asset]
    head: dict[str, Any]
    """`total`, `count`, `limit`, `offset`, `sort_by` and `order` of the answer."""


async def read_page(
    context: Context,
    request: Request,
    caller: Caller,
    kind: str,
    workspace: str,
    max_limit: int,
    contains: str = "",
) -> AssetPage:
    """`contains`: a part of the name."""
    query = request.query_params
    limit = fields.number(query, "limit", 50, 1, max_limit)
    page = fields.number(query, "offset", 0, 0, fields.MAX_PAGE)
    sort_by, order = fields.sorting(query, "create_time", tuple(_SORT_KEYS))
    found = await context.assets.find(
        caller,
        kind,
        scope=workspace,
        contains=contains,
        order_by=_SORT_KEYS[sort_by],
        descending=order == "desc",
        limit=limit,
        offset=page * limit,
    )
    total = await context.assets.count(caller, kind, scope=workspace, contains=contains)
    head = {"total": total, "count": len(found), "limit": limit, "offset": page}
    return AssetPage(found, head | {"sort_by": sort_by, "order": order})
