"""Algorithms: code, engine, parameters and channels that jobs use by id."""

import uuid
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnout.dialects.modelarts import asset_lists, decode, fields, reply, wire
from turnout.dialects.modelarts.account import workspaces
from turnout.dialects.modelarts.algorithms import lookup
from turnout.dialects.modelarts.algorithms.document import stored_algorithm
from turnout.dialects.modelarts.algorithms.lookup import KIND, missing
from turnout.dialects.modelarts.context import Context, Routes
from turnout.dialects.modelarts.errors import ALGORITHM_EXISTS, BAD_QUERY, OBS_UNREADABLE, invalid, quoted
from turnout.dialects.modelarts.jobs import parameters
from turnout.dialects.modelarts.names import DEFAULT_WORKSPACE
from turnout.dialects.modelarts.program import code
from turnout.errors import AlreadyExists, Invalid, NotFound, TimedOut
from turnout.job import Asset
from turnout.service import Caller

MAX_LIMIT = 50


async def create(context: Context, request: Request, caller: Caller) -> Response:
    document = decode.decode_algorithm(await request.body())
    workspace = document.metadata.workspace_id or DEFAULT_WORKSPACE
    await workspaces.check_access(context, caller, workspace)
    stored = await _stored(context, caller, document, workspace)
    now = context.clock()
    asset = _asset(caller, str(uuid.uuid4()), workspace, document, stored, now)
    try:
        created = await context.assets.create(caller, asset)
    except AlreadyExists:
        raise _exists(document.metadata.name) from None
    return reply.json(_render(created), 201)


async def list_all(context: Context, request: Request, caller: Caller) -> Response:
    workspace = fields.query_text(request.query_params, "workspace_id", DEFAULT_WORKSPACE)
    await workspaces.check_access(context, caller, workspace)
    contains = _name_part(fields.query_text(request.query_params, "searches"))
    page = await asset_lists.read_page(context, request, caller, KIND, workspace, MAX_LIMIT, contains)
    head = page.head | {
        "group_by": fields.query_text(request.query_params, "group_by"),
        "workspace_id": workspace,
    }
    return reply.json(head | {"items": [_render(asset) for asset in page.assets]})


async def show(context: Context, request: Request, caller: Caller) -> Response:
    return reply.json(_render(await lookup.by_id(context, caller, request.path_params["algorithm_id"])))


async def change(context: Context, request: Request, caller: Caller) -> Response:
    """Replaces the whole document. Existing jobs keep what they got from the old one."""
    document = decode.decode_algorithm(await request.body())
    old = await lookup.by_id(context, caller, request.path_params["algorithm_id"])
    workspace = document.metadata.workspace_id or old.scope
    await workspaces.check_access(context, caller, workspace)
    stored = await _stored(context, caller, document, workspace)
    new = _asset(caller, old.id, workspace, document, stored, context.clock())
    try:
        await context.assets.update(caller, msgspec.structs.replace(new, created=old.created))
    except AlreadyExists:
        raise _exists(document.metadata.name) from None
    except NotFound:
        raise missing() from None
    return reply.json(_render(await lookup.by_id(context, caller, old.id)), 201)


async def delete(context: Context, request: Request, caller: Caller) -> Response:
    found = await lookup.by_id(context, caller, request.path_params["algorithm_id"])
    await context.assets.delete(caller, KIND, found.id)
    return reply.json(None, 202)


ROUTES: Routes = [
    ("POST", "/algorithms", create),
    ("GET", "/algorithms", list_all),
    ("GET", "/algorithms/{algorithm_id}", show),
    ("PUT", "/algorithms/{algorithm_id}", change),
    ("DELETE", "/algorithms/{algorithm_id}", delete),
]


async def _stored(
    context: Context, caller: Caller, document: wire.Algorithm, workspace: str
) -> dict[str, Any]:
    stored = stored_algorithm(document, caller.key)
    config = stored.get("job_config", {})
    if config.get("code_dir"):
        found = await _check_code(context, caller, config["code_dir"], config.get("boot_file", ""))
        if found:
            stored["metadata"]["size"] = found.size
            config["code_tree"] = found.tree
    stored["metadata"]["workspace_id"] = workspace
    return stored


async def _check_code(
    context: Context, caller: Caller, code_dir: str, boot_file: str
) -> code.CodeInfo | None:
    try:
        return await code.check(context, caller, code_dir, boot_file, "job_config")
    except TimedOut as error:
        detail = f": {quoted(code_dir)} cannot be listed: {error.message}."
        raise invalid(OBS_UNREADABLE, "job_config.code_dir", detail) from None


def _asset(
    caller: Caller, asset_id: str, workspace: str, document: wire.Algorithm, stored: dict[str, Any], now: int
) -> Asset:
    name = document.metadata.name
    return Asset(caller.project, KIND, asset_id, workspace, name, now, now, msgspec.json.encode(stored))


def _render(asset: Asset) -> dict[str, Any]:
    stored: dict[str, Any] = msgspec.json.decode(asset.document)
    parameters.show_editable(stored["job_config"].get("parameters") or ())
    changed = asset.updated != asset.created
    stored["metadata"] |= {
        "id": asset.id,
        "create_time": asset.created // 1_000_000,
        "update_time": asset.updated // 1_000_000 if changed else 0,
    }
    return stored


def _name_part(text: str) -> str:
    """`name:part` matches names that contain the part."""
    if not text:
        return ""
    key, separator, part = text.partition(":")
    if not separator or key != "name":
        raise Invalid(
            f"searches must be name:<part of the name>, not {text!r}.", field="searches", code=BAD_QUERY
        )
    return part


def _exists(name: str) -> AlreadyExists:
    return AlreadyExists(
        f"An algorithm {name!r} already exists in this workspace.",
        field="metadata.name",
        code=ALGORITHM_EXISTS,
    )
