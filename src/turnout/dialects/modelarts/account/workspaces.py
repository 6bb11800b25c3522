"""Workspaces: parts of a project with their own job names and access rules. The default one always exists."""

import uuid
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnout.dialects.modelarts import fields, reply
from turnout.dialects.modelarts.context import Context, Routes
from turnout.dialects.modelarts.errors import (
    INVALID,
    NO_SUCH_WORKSPACE,
    OVER_QUOTA,
    WORKSPACE_EXISTS,
    WORKSPACE_IN_USE,
)
from turnout.dialects.modelarts.names import DEFAULT_WORKSPACE, scope_of
from turnout.errors import AlreadyExists, Denied, Invalid, NotFound, Unavailable, WrongState
from turnout.job import Asset, Compare
from turnout.service import Caller

KIND = "workspace"
QUOTA = "job-num"
UNLIMITED = -1
_MAX_LIMIT = 1000
_MAX_QUOTA = 2**31 - 1
_AUTH_TYPES = ("PUBLIC", "PRIVATE", "INTERNAL")
_NAME = r"[\w-]{4,64}"
_NAME_RULE = "4 to 64 letters, digits, - or _"
_SORT_KEYS = ("name", "update_time", "status")


class _Grant(msgspec.Struct, omit_defaults=True):
    user_id: str | None = None
    user_name: str | None = None
    user_type: str | None = None


class _WorkspaceBody(msgspec.Struct):
    name: str | None = None
    description: str | None = None
    auth_type: str | None = None
    enterprise_project_id: str | None = None
    grants: list[_Grant] | None = None


class _Quota(msgspec.Struct):
    resource: str
    quota: int


class _Quotas(msgspec.Struct):
    quotas: list[_Quota]


class _StoredWorkspace(msgspec.Struct, omit_defaults=True):
    """The stored document of a workspace."""

    owner: str = ""
    description: str = ""
    auth_type: str = "PUBLIC"
    enterprise_project_id: str = "0"
    grants: list[_Grant] = []
    quota: int = UNLIMITED


_encode = msgspec.json.Encoder().encode
_stored = msgspec.json.Decoder(_StoredWorkspace).decode


async def check_access(context: Context, caller: Caller, workspace_id: str) -> None:
    """Raises NotFound if the workspace does not exist, and Denied if the caller cannot use it."""
    if workspace_id == DEFAULT_WORKSPACE:
        return
    workspace = await _find(context, caller, workspace_id)
    if not _is_open_to(_stored(workspace.document), caller):
        raise Denied(f"The workspace {workspace.name} is not open to {caller.key}.", field="workspace_id")


async def check_quota(context: Context, caller: Caller, workspace_id: str) -> None:
    """Raises Unavailable if the quota of the workspace is used up."""
    if workspace_id == DEFAULT_WORKSPACE:
        return
    quota = _stored((await _find(context, caller, workspace_id)).document).quota
    if quota != UNLIMITED and await _used(context, caller, workspace_id) >= quota:
        raise Unavailable(
            f"The workspace {workspace_id} has reached its quota of {quota} training jobs.",
            code=OVER_QUOTA,
        )


async def create(context: Context, request: Request, caller: Caller) -> Response:
    body = await fields.read(request, _WorkspaceBody)
    name = _name(body.name)
    now = context.clock()
    stored = _StoredWorkspace(
        owner=caller.key,
        description=fields.text("description", body.description, 256),
        auth_type=_auth_type(body.auth_type or "PUBLIC"),
        enterprise_project_id=fields.text("enterprise_project_id", body.enterprise_project_id or "0", 64),
        grants=_grants(body.grants or []),
    )
    asset = Asset(caller.project, KIND, uuid.uuid4().hex, "", name, now, now, _encode(stored))
    try:
        return reply.json(_document(await context.assets.create(caller, asset), grants=True))
    except AlreadyExists:
        raise _exists(name) from None


async def show(context: Context, request: Request, caller: Caller) -> Response:
    return reply.json(_document(await _from_path(context, request, caller), grants=True))


async def list_all(context: Context, request: Request, caller: Caller) -> Response:
    order_by, order = fields.sorting(request.query_params, "name", _SORT_KEYS)
    limit = fields.number(request.query_params, "limit", _MAX_LIMIT, 1, _MAX_LIMIT)
    page = fields.number(request.query_params, "offset", 0, 0, fields.MAX_PAGE)
    name = fields.query_text(request.query_params, "name")
    enterprise = fields.query_text(request.query_params, "enterprise_project_id")
    accessible = request.query_params.get("filter_accessible", "").lower() == "true"
    found = [_default(), *await context.assets.find(caller, KIND, limit=10 * _MAX_LIMIT)]
    items = [
        _document(asset)
        for asset in found
        if name in asset.name and (not accessible or _is_open_to(_stored(asset.document), caller))
    ]
    items = [item for item in items if enterprise in ("", item["enterprise_project_id"])]
    items.sort(key=lambda item: (item[order_by], item["id"]), reverse=order == "desc")
    page_items = items[page * limit : (page + 1) * limit]
    return reply.json({"total_count": len(items), "count": len(page_items), "workspaces": page_items})


async def change(context: Context, request: Request, caller: Caller) -> Response:
    body = await fields.read(request, _WorkspaceBody)
    old = await _changeable(context, request, caller)
    stored = _stored(old.document)
    if body.description is not None:
        stored.description = fields.text("description", body.description, 256)
    if body.auth_type is not None:
        stored.auth_type = _auth_type(body.auth_type)
    if body.grants is not None:
        stored.grants = _grants(body.grants)
    name = _name(body.name) if body.name is not None else old.name
    new = msgspec.structs.replace(
        old, name=name, updated=max(context.clock(), old.updated), document=_encode(stored)
    )
    try:
        await context.assets.update(caller, new)
    except AlreadyExists:
        raise _exists(name) from None
    return reply.json({"workspace_id": old.id})


async def delete(context: Context, request: Request, caller: Caller) -> Response:
    """Only an empty workspace can be deleted, because no call could list its jobs any more."""
    workspace = await _changeable(context, request, caller)
    jobs = await _used(context, caller, workspace.id)
    others = [
        await context.assets.count(caller, kind, scope=workspace.id) for kind in ("algorithm", "experiment")
    ]
    if jobs or any(others):
        raise WrongState(
            f"The workspace {workspace.name} still has {jobs} training jobs, {others[0]} algorithms and "
            f"{others[1]} experiments: delete them first.",
            code=WORKSPACE_IN_USE,
        )
    await context.assets.delete(caller, KIND, workspace.id)
    return reply.json({"workspace_id": workspace.id})


async def show_quotas(context: Context, request: Request, caller: Caller) -> Response:
    workspace = await _from_path(context, request, caller)
    quota = _quota_document(workspace)
    used = await _used(context, caller, workspace.id) if quota["quota"] != UNLIMITED else None
    return reply.json({"quotas": [quota | {"used_quota": used}]})


async def change_quotas(context: Context, request: Request, caller: Caller) -> Response:
    body = await fields.read(request, _Quotas)
    workspace = await _changeable(context, request, caller)
    stored = _stored(workspace.document)
    for item in body.quotas:
        if item.resource != QUOTA:
            raise Invalid(
                f"quotas[].resource must be {QUOTA}, not {item.resource!r}.", field="quotas", code=INVALID
            )
        if not UNLIMITED <= item.quota <= _MAX_QUOTA:
            raise Invalid(
                f"quotas[].quota must be from 0 to {_MAX_QUOTA}, or {UNLIMITED} for no limit, not {item.quota}.",
                field="quotas",
                code=INVALID,
            )
        stored.quota = item.quota
    new = msgspec.structs.replace(
        workspace, updated=max(context.clock(), workspace.updated), document=_encode(stored)
    )
    return reply.json({"quotas": [_quota_document(await context.assets.update(caller, new))]})


_WORKSPACES = "/v1/{project_id}/workspaces"
_WORKSPACE = _WORKSPACES + "/{workspace_id}"
ROUTES: Routes = [
    ("POST", _WORKSPACES, create),
    ("GET", _WORKSPACES, list_all),
    ("GET", _WORKSPACE, show),
    ("PUT", _WORKSPACE, change),
    ("DELETE", _WORKSPACE, delete),
    ("GET", _WORKSPACE + "/quotas", show_quotas),
    ("PUT", _WORKSPACE + "/quotas", change_quotas),
]


def _default() -> Asset:
    return Asset("", KIND, DEFAULT_WORKSPACE, "", "default", 0, 0, _encode(_StoredWorkspace()))


async def _find(context: Context, caller: Caller, workspace_id: str) -> Asset:
    try:
        return await context.assets.get(caller, KIND, workspace_id)
    except NotFound:
        raise NotFound(
            f"The workspace {workspace_id!r} does not exist.", field="workspace_id", code=NO_SUCH_WORKSPACE
        ) from None


async def _from_path(context: Context, request: Request, caller: Caller) -> Asset:
    """The workspace `{workspace_id}` of the address. It can be the default one."""
    workspace_id = request.path_params["workspace_id"]
    if workspace_id == DEFAULT_WORKSPACE:
        return _default()
    await check_access(context, caller, workspace_id)
    return await _find(context, caller, workspace_id)


async def _changeable(context: Context, request: Request, caller: Caller) -> Asset:
    """The workspace of the address. Raises Invalid for the default one."""
    workspace = await _from_path(context, request, caller)
    if workspace.id == DEFAULT_WORKSPACE:
        raise Invalid(
            "The default workspace cannot be changed or deleted.", field="workspace_id", code=INVALID
        )
    return workspace


def _is_open_to(stored: _StoredWorkspace, caller: Caller) -> bool:
    if caller.root or stored.auth_type == "PUBLIC" or caller.key == stored.owner:
        return True
    named = {name for grant in stored.grants for name in (grant.user_id, grant.user_name)}
    return stored.auth_type == "INTERNAL" and caller.key in named


async def _used(context: Context, caller: Caller, workspace_id: str) -> int:
    return await context.jobs.count(caller, Compare("scope", "=", scope_of(workspace_id)))


def _document(asset: Asset, grants: bool = False) -> dict[str, Any]:
    stored = _stored(asset.document)
    document: dict[str, Any] = {
        "id": asset.id,
        "name": asset.name,
        "description": stored.description,
        "owner": stored.owner,
        "auth_type": stored.auth_type,
        "enterprise_project_id": stored.enterprise_project_id,
        "enterprise_project_name": "default" if stored.enterprise_project_id == "0" else "",
        "status": "NORMAL",
        "status_info": "",
        "create_time": asset.created // 1_000_000,
        "update_time": asset.updated // 1_000_000,
    }
    return document | ({"grants": msgspec.to_builtins(stored.grants)} if grants else {})


def _quota_document(asset: Asset) -> dict[str, Any]:
    return {
        "resource": QUOTA,
        "quota": _stored(asset.document).quota,
        "min_quota": UNLIMITED,
        "max_quota": _MAX_QUOTA,
        "name_en": "Training jobs",
        "name_cn": "训练作业",
        "unit_en": "",
        "unit_cn": "个",
        "update_time": asset.updated // 1_000_000,
    }


def _name(name: str | None) -> str:
    if name == "default":
        raise _exists(name)
    return fields.text("name", name, 64, _NAME, _NAME_RULE)


def _auth_type(given: str) -> str:
    if given not in _AUTH_TYPES:
        raise Invalid(
            f"auth_type must be {' or '.join(_AUTH_TYPES)}, not {given!r}.", field="auth_type", code=INVALID
        )
    return given


def _grants(given: list[_Grant]) -> list[_Grant]:
    if len(given) > _MAX_LIMIT or any(not (grant.user_id or grant.user_name) for grant in given):
        raise Invalid(
            f"grants must have at most {_MAX_LIMIT} users, each with a user_id or a user_name.",
            field="grants",
            code=INVALID,
        )
    return given


def _exists(name: str) -> AlreadyExists:
    return AlreadyExists(f"A workspace {name!r} already exists.", field="name", code=WORKSPACE_EXISTS)
