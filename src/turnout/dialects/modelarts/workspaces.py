"""Workspaces: rooms within a project, each with its own names, and who may enter. The first is always there."""

import uuid
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnout.dialects.modelarts import body, reply
from turnout.dialects.modelarts.body import DEFAULT_WORKSPACE
from turnout.dialects.modelarts.errors import (
    INVALID,
    NO_SUCH_WORKSPACE,
    OVER_QUOTA,
    WORKSPACE_EXISTS,
    WORKSPACE_IN_USE,
)
from turnout.dialects.modelarts.house import House, Routes
from turnout.errors import AlreadyExists, Denied, Invalid, NotFound, Unavailable, WrongState
from turnout.job import Asset, Compare
from turnout.service import Caller

KIND = "workspace"
QUOTA = "job-num"
UNLIMITED = -1
_MOST = 1000
_LARGEST = 2**31 - 1
_AUTH_TYPES = ("PUBLIC", "PRIVATE", "INTERNAL")
_NAME = r"[\w-]{4,64}"
_NAME_RULE = "4 to 64 letters, digits, - or _"
_ORDERS = {"name": "name", "update_time": "update_time", "status": "status"}


class _Grant(msgspec.Struct, omit_defaults=True):
    user_id: str | None = None
    user_name: str | None = None
    user_type: str | None = None


class _Asked(msgspec.Struct):
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


class _Kept(msgspec.Struct, omit_defaults=True):
    """What is stored with a workspace."""

    owner: str = ""
    description: str = ""
    auth_type: str = "PUBLIC"
    enterprise_project_id: str = "0"
    grants: list[_Grant] = []
    quota: int = UNLIMITED


_keep = msgspec.json.Encoder().encode
_kept = msgspec.json.Decoder(_Kept).decode


def scope_of(workspace_id: str) -> str:
    """The scope that the names of a workspace's jobs are unique in."""
    return f"modelarts:{workspace_id}"


async def enter(house: House, caller: Caller, workspace_id: str) -> None:
    """Raises NotFound if there is no such workspace, and Denied if the caller may not use it."""
    if workspace_id == DEFAULT_WORKSPACE:
        return
    workspace = await _find(house, caller, workspace_id)
    if not _open_to(_kept(workspace.document), caller):
        raise Denied(f"The workspace {workspace.name} is not open to {caller.key}.", field="workspace_id")


async def check_quota(house: House, caller: Caller, workspace_id: str) -> None:
    """Raises Unavailable if the workspace may have no more jobs."""
    if workspace_id == DEFAULT_WORKSPACE:
        return
    quota = _kept((await _find(house, caller, workspace_id)).document).quota
    if quota != UNLIMITED and await _used(house, caller, workspace_id) >= quota:
        raise Unavailable(
            f"The workspace {workspace_id} may have {quota} training jobs, and has them.", code=OVER_QUOTA
        )


async def create(house: House, request: Request, caller: Caller) -> Response:
    asked = await body.read(request, _Asked)
    name = _name(asked.name)
    now = house.clock()
    kept = _Kept(
        owner=caller.key,
        description=body.text("description", asked.description, 256),
        auth_type=_auth_type(asked.auth_type or "PUBLIC"),
        enterprise_project_id=body.text("enterprise_project_id", asked.enterprise_project_id or "0", 64),
        grants=_grants(asked.grants or []),
    )
    asset = Asset(caller.project, KIND, uuid.uuid4().hex, "", name, now, now, _keep(kept))
    try:
        return reply.json(_document(await house.assets.create(caller, asset), grants=True))
    except AlreadyExists:
        raise _taken(name) from None


async def show(house: House, request: Request, caller: Caller) -> Response:
    return reply.json(_document(await _asked_for(house, request, caller), grants=True))


async def find_all(house: House, request: Request, caller: Caller) -> Response:
    order_by, order = body.sorting(request, "name", tuple(_ORDERS))
    limit = body.number(request, "limit", _MOST, 1, _MOST)
    page = body.number(request, "offset", 0, 0, _LARGEST)
    name, enterprise = body.query_text(request, "name"), body.query_text(request, "enterprise_project_id")
    accessible = request.query_params.get("filter_accessible", "").lower() == "true"
    found = [_default(), *await house.assets.find(caller, KIND, limit=10 * _MOST)]
    shown = [
        _document(one)
        for one in found
        if name in one.name and (not accessible or _open_to(_kept(one.document), caller))
    ]
    shown = [one for one in shown if enterprise in ("", one["enterprise_project_id"])]
    shown.sort(key=lambda one: (one[_ORDERS[order_by]], one["id"]), reverse=order == "desc")
    part = shown[page * limit : (page + 1) * limit]
    return reply.json({"total_count": len(shown), "count": len(part), "workspaces": part})


async def change(house: House, request: Request, caller: Caller) -> Response:
    asked = await body.read(request, _Asked)
    old = await _own(house, request, caller)
    kept = _kept(old.document)
    if asked.description is not None:
        kept.description = body.text("description", asked.description, 256)
    if asked.auth_type is not None:
        kept.auth_type = _auth_type(asked.auth_type)
    if asked.grants is not None:
        kept.grants = _grants(asked.grants)
    name = _name(asked.name) if asked.name is not None else old.name
    new = msgspec.structs.replace(old, name=name, updated=house.clock(), document=_keep(kept))
    try:
        await house.assets.update(caller, new)
    except AlreadyExists:
        raise _taken(name) from None
    return reply.json({"workspace_id": old.id})


async def delete(house: House, request: Request, caller: Caller) -> Response:
    """Only an empty one: what is in it would be lost from sight."""
    workspace = await _own(house, request, caller)
    jobs = await _used(house, caller, workspace.id)
    others = [
        await house.assets.count(caller, kind, scope=workspace.id) for kind in ("algorithm", "experiment")
    ]
    if jobs or any(others):
        raise WrongState(
            f"The workspace {workspace.name} still has {jobs} training jobs, {others[0]} algorithms and "
            f"{others[1]} experiments: delete them first.",
            code=WORKSPACE_IN_USE,
        )
    await house.assets.delete(caller, KIND, workspace.id)
    return reply.json({"workspace_id": workspace.id})


async def show_quotas(house: House, request: Request, caller: Caller) -> Response:
    workspace = await _asked_for(house, request, caller)
    quota = _quota_document(workspace)
    used = await _used(house, caller, workspace.id) if quota["quota"] != UNLIMITED else None
    return reply.json({"quotas": [quota | {"used_quota": used}]})


async def change_quotas(house: House, request: Request, caller: Caller) -> Response:
    asked = await body.read(request, _Quotas)
    workspace = await _own(house, request, caller)
    kept = _kept(workspace.document)
    for one in asked.quotas:
        if one.resource != QUOTA:
            raise Invalid(
                f"quotas[].resource must be {QUOTA}, not {one.resource!r}.", field="quotas", code=INVALID
            )
        if not UNLIMITED <= one.quota <= _LARGEST:
            raise Invalid(
                f"quotas[].quota must be from 0 to {_LARGEST}, or {UNLIMITED} for no limit, not {one.quota}.",
                field="quotas",
                code=INVALID,
            )
        kept.quota = one.quota
    new = msgspec.structs.replace(workspace, updated=house.clock(), document=_keep(kept))
    return reply.json({"quotas": [_quota_document(await house.assets.update(caller, new))]})


_ALL = "/v1/{project_id}/workspaces"
_ONE = _ALL + "/{workspace_id}"
ROUTES: Routes = [
    ("POST", _ALL, create),
    ("GET", _ALL, find_all),
    ("GET", _ONE, show),
    ("PUT", _ONE, change),
    ("DELETE", _ONE, delete),
    ("GET", _ONE + "/quotas", show_quotas),
    ("PUT", _ONE + "/quotas", change_quotas),
]


def _default() -> Asset:
    return Asset("", KIND, DEFAULT_WORKSPACE, "", "default", 0, 0, _keep(_Kept()))


async def _find(house: House, caller: Caller, workspace_id: str) -> Asset:
    try:
        return await house.assets.get(caller, KIND, workspace_id)
    except NotFound:
        raise NotFound(
            f"The workspace {workspace_id!r} does not exist.", field="workspace_id", code=NO_SUCH_WORKSPACE
        ) from None


async def _asked_for(house: House, request: Request, caller: Caller) -> Asset:
    """The workspace in the address, which may be the default one."""
    workspace_id = request.path_params["workspace_id"]
    if workspace_id == DEFAULT_WORKSPACE:
        return _default()
    await enter(house, caller, workspace_id)
    return await _find(house, caller, workspace_id)


async def _own(house: House, request: Request, caller: Caller) -> Asset:
    """One that may be changed."""
    workspace = await _asked_for(house, request, caller)
    if workspace.id == DEFAULT_WORKSPACE:
        raise Invalid(
            "The default workspace cannot be changed or deleted.", field="workspace_id", code=INVALID
        )
    return workspace


def _open_to(kept: _Kept, caller: Caller) -> bool:
    if caller.root or kept.auth_type == "PUBLIC" or caller.key == kept.owner:
        return True
    named = {name for grant in kept.grants for name in (grant.user_id, grant.user_name)}
    return kept.auth_type == "INTERNAL" and caller.key in named


async def _used(house: House, caller: Caller, workspace_id: str) -> int:
    return await house.jobs.count(caller, Compare("scope", "=", scope_of(workspace_id)))


def _document(asset: Asset, grants: bool = False) -> dict[str, Any]:
    kept = _kept(asset.document)
    shown: dict[str, Any] = {
        "id": asset.id,
        "name": asset.name,
        "description": kept.description,
        "owner": kept.owner,
        "auth_type": kept.auth_type,
        "enterprise_project_id": kept.enterprise_project_id,
        "enterprise_project_name": "default" if kept.enterprise_project_id == "0" else "",
        "status": "NORMAL",
        "status_info": "",
        "create_time": asset.created // 1_000_000,
        "update_time": asset.updated // 1_000_000,
    }
    return shown | ({"grants": msgspec.to_builtins(kept.grants)} if grants else {})


def _quota_document(asset: Asset) -> dict[str, Any]:
    return {
        "resource": QUOTA,
        "quota": _kept(asset.document).quota,
        "min_quota": UNLIMITED,
        "max_quota": _LARGEST,
        "name_en": "Training jobs",
        "name_cn": "训练作业",
        "unit_en": "",
        "unit_cn": "个",
        "update_time": asset.updated // 1_000_000,
    }


def _name(name: str | None) -> str:
    if name == "default":
        raise _taken(name)
    return body.text("name", name, 64, _NAME, _NAME_RULE)


def _auth_type(given: str) -> str:
    if given not in _AUTH_TYPES:
        raise Invalid(
            f"auth_type must be {' or '.join(_AUTH_TYPES)}, not {given!r}.", field="auth_type", code=INVALID
        )
    return given


def _grants(given: list[_Grant]) -> list[_Grant]:
    if len(given) > _MOST or any(not (grant.user_id or grant.user_name) for grant in given):
        raise Invalid(
            f"grants may have {_MOST} users, each with a user_id or a user_name.",
            field="grants",
            code=INVALID,
        )
    return given


def _taken(name: str) -> AlreadyExists:
    return AlreadyExists(f"There is a workspace {name!r} already.", field="name", code=WORKSPACE_EXISTS)
