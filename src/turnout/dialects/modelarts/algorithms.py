"""Algorithms: what jobs name by id instead of saying it all again."""

import uuid
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnout.dialects.modelarts import body, code, decode, reply, translate, wire, workspaces
from turnout.dialects.modelarts.body import DEFAULT_WORKSPACE
from turnout.dialects.modelarts.errors import ALGORITHM_EXISTS, BAD_QUERY, NO_SUCH_ALGORITHM
from turnout.dialects.modelarts.house import House, Routes
from turnout.errors import AlreadyExists, Invalid, NotFound
from turnout.job import Asset
from turnout.service import Caller

KIND = "algorithm"
_ORDERS: dict[str, Literal["created", "updated", "name"]] = {
    "create_time": "created",
    "update_time": "updated",
    "name": "name",
}


async def by_id(house: House, caller: Caller, algorithm_id: str) -> Asset:
    """Raises NotFound with the very words of the documentation."""
    try:
        found = await house.assets.get(caller, KIND, algorithm_id)
    except NotFound:
        raise _missing() from None
    await workspaces.enter(house, caller, found.scope)
    return found


async def create(house: House, request: Request, caller: Caller) -> Response:
    document = decode.decode_algorithm(await request.body())
    workspace = document.metadata.workspace_id or DEFAULT_WORKSPACE
    await workspaces.enter(house, caller, workspace)
    kept = await _kept(house, caller, document, workspace)
    now = house.clock()
    asset = _asset(caller, str(uuid.uuid4()), workspace, document, kept, now)
    try:
        made = await house.assets.create(caller, asset)
    except AlreadyExists:
        raise _taken(document.metadata.name) from None
    return reply.json(_shown(made), 201)


async def find_all(house: House, request: Request, caller: Caller) -> Response:
    workspace = body.query_text(request, "workspace_id", DEFAULT_WORKSPACE)
    await workspaces.enter(house, caller, workspace)
    limit = body.number(request, "limit", 50, 1, 50)
    page = body.number(request, "offset", 0, 0, 2**31 - 1)
    sort_by, order = body.sorting(request, "create_time", tuple(_ORDERS))
    contains = _searched(body.query_text(request, "searches"))
    found = await house.assets.find(
        caller,
        KIND,
        scope=workspace,
        contains=contains,
        order_by=_ORDERS[sort_by],
        descending=order == "desc",
        limit=limit,
        offset=page * limit,
    )
    head: dict[str, Any] = {
        "total": await house.assets.count(caller, KIND, scope=workspace, contains=contains),
        "count": len(found),
        "limit": limit,
        "offset": page,
        "sort_by": sort_by,
        "order": order,
        "group_by": body.query_text(request, "group_by"),
        "workspace_id": workspace,
    }
    return reply.json(head | {"items": [_shown(asset) for asset in found]})


async def show(house: House, request: Request, caller: Caller) -> Response:
    return reply.json(_shown(await by_id(house, caller, request.path_params["algorithm_id"])))


async def change(house: House, request: Request, caller: Caller) -> Response:
    """The whole document is replaced; jobs that were made of the old one keep what they have."""
    document = decode.decode_algorithm(await request.body())
    old = await by_id(house, caller, request.path_params["algorithm_id"])
    workspace = document.metadata.workspace_id or old.scope
    await workspaces.enter(house, caller, workspace)
    kept = await _kept(house, caller, document, workspace)
    new = _asset(caller, old.id, workspace, document, kept, house.clock())
    try:
        await house.assets.update(caller, msgspec.structs.replace(new, created=old.created))
    except AlreadyExists:
        raise _taken(document.metadata.name) from None
    except NotFound:
        raise _missing() from None
    return reply.json(_shown(await by_id(house, caller, old.id)), 201)


async def delete(house: House, request: Request, caller: Caller) -> Response:
    found = await by_id(house, caller, request.path_params["algorithm_id"])
    await house.assets.delete(caller, KIND, found.id)
    return reply.json(None, 202)


ROUTES: Routes = [
    ("POST", "/algorithms", create),
    ("GET", "/algorithms", find_all),
    ("GET", "/algorithms/{algorithm_id}", show),
    ("PUT", "/algorithms/{algorithm_id}", change),
    ("DELETE", "/algorithms/{algorithm_id}", delete),
]


async def _kept(house: House, caller: Caller, document: wire.Algorithm, workspace: str) -> dict[str, Any]:
    kept = translate.keep_algorithm(document, house.settings, caller.key)
    config = kept.get("job_config", {})
    if config.get("code_dir"):
        found = await code.look(house, caller, config["code_dir"], config.get("boot_file", ""), "job_config")
        if found:
            kept["metadata"]["size"] = found.size
            config["code_tree"] = found.tree
    kept["metadata"]["workspace_id"] = workspace
    return kept


def _asset(
    caller: Caller, asset_id: str, workspace: str, document: wire.Algorithm, kept: dict[str, Any], now: int
) -> Asset:
    name = document.metadata.name
    return Asset(caller.project, KIND, asset_id, workspace, name, now, now, msgspec.json.encode(kept))


def _shown(asset: Asset) -> dict[str, Any]:
    kept: dict[str, Any] = msgspec.json.decode(asset.document)
    changed = asset.updated != asset.created
    kept["metadata"] |= {
        "id": asset.id,
        "create_time": asset.created // 1_000_000,
        "update_time": asset.updated // 1_000_000 if changed else 0,
    }
    return kept


def _searched(text: str) -> str:
    """`name:part` finds names with that part in them."""
    if not text:
        return ""
    key, separator, part = text.partition(":")
    if not separator or key != "name":
        raise Invalid(
            f"searches must be name:<part of a name>, not {text!r}.", field="searches", code=BAD_QUERY
        )
    return part


def _missing() -> NotFound:
    return NotFound("algorithm not found.", field="algorithm.id", code=NO_SUCH_ALGORITHM)


def _taken(name: str) -> AlreadyExists:
    return AlreadyExists(
        f"There is an algorithm {name!r} in this workspace already.",
        field="metadata.name",
        code=ALGORITHM_EXISTS,
    )
