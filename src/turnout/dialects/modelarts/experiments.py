"""Training experiments: names that jobs are gathered under."""

import uuid
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnout.dialects.modelarts import body, reply, wire, workspaces
from turnout.dialects.modelarts.body import DEFAULT_WORKSPACE
from turnout.dialects.modelarts.errors import EXPERIMENT_EXISTS, NO_SUCH_EXPERIMENT
from turnout.dialects.modelarts.house import House, Routes
from turnout.errors import AlreadyExists, NotFound
from turnout.job import Asset, Label
from turnout.service import Caller

KIND = "experiment"
LABEL = "training_experiment_id"
_NAME = r"[\w-]{1,64}"
_NAME_RULE = "1 to 64 letters, digits, - or _"
_ORDERS: dict[str, Literal["created", "updated", "name"]] = {
    "create_time": "created",
    "update_time": "updated",
    "name": "name",
}


class _Metadata(msgspec.Struct):
    name: str
    description: str | None = None
    workspace_id: str | None = None


class _Asked(msgspec.Struct):
    metadata: _Metadata


class _Changed(msgspec.Struct):
    name: str | None = None
    description: str | None = None


class _Kept(msgspec.Struct):
    description: str = ""


_keep = msgspec.json.Encoder().encode
_kept = msgspec.json.Decoder(_Kept).decode


async def by_id(house: House, caller: Caller, experiment_id: str) -> Asset:
    try:
        return await house.assets.get(caller, KIND, experiment_id)
    except NotFound:
        raise NotFound(
            f"The training experiment {experiment_id!r} does not exist.",
            field="experiment_id",
            code=NO_SUCH_EXPERIMENT,
        ) from None


async def by_name(house: House, caller: Caller, workspace: str, asked: wire.Experiment) -> tuple[Asset, bool]:
    """The experiment of that name, or one that is yet to be created, and whether it is."""
    place = "metadata.training_experiment_reference"
    name = body.text(f"{place}.name", asked.name, 64, _NAME, _NAME_RULE)
    found = await house.assets.by_name(caller, KIND, workspace, name)
    if found:
        return found, False
    return _new(
        house, caller, workspace, name, body.text(f"{place}.description", asked.description, 256)
    ), True


async def create(house: House, request: Request, caller: Caller) -> Response:
    asked = (await body.read(request, _Asked)).metadata
    workspace = asked.workspace_id or DEFAULT_WORKSPACE
    await workspaces.enter(house, caller, workspace)
    name = body.text("metadata.name", asked.name, 64, _NAME, _NAME_RULE)
    description = body.text("metadata.description", asked.description, 256)
    try:
        made = await house.assets.create(caller, _new(house, caller, workspace, name, description))
    except AlreadyExists:
        raise _taken(name) from None
    return reply.json(_document(made, 0), 201)


async def find_all(house: House, request: Request, caller: Caller) -> Response:
    workspace = body.query_text(request, "workspace_id", DEFAULT_WORKSPACE)
    await workspaces.enter(house, caller, workspace)
    limit = body.number(request, "limit", 50, 1, 100)
    page = body.number(request, "offset", 0, 0, 2**31 - 1)
    sort_by, order = body.sorting(request, "create_time", tuple(_ORDERS))
    found = await house.assets.find(
        caller,
        KIND,
        scope=workspace,
        order_by=_ORDERS[sort_by],
        descending=order == "desc",
        limit=limit,
        offset=page * limit,
    )
    items = [_document(one, await _jobs(house, caller, one.id)) for one in found]
    total = await house.assets.count(caller, KIND, scope=workspace)
    head: dict[str, Any] = {"total": total, "count": len(items), "limit": limit, "offset": page}
    return reply.json(head | {"sort_by": sort_by, "order": order, "items": items})


async def show(house: House, request: Request, caller: Caller) -> Response:
    found = await _asked_for(house, request, caller)
    return reply.json(_document(found, await _jobs(house, caller, found.id)))


async def change(house: House, request: Request, caller: Caller) -> Response:
    asked = await body.read(request, _Changed)
    old = await _asked_for(house, request, caller)
    name = old.name if asked.name is None else body.text("name", asked.name, 64, _NAME, _NAME_RULE)
    kept = _kept(old.document)
    if asked.description is not None:
        kept.description = body.text("description", asked.description, 256)
    new = msgspec.structs.replace(old, name=name, updated=house.clock(), document=_keep(kept))
    try:
        await house.assets.update(caller, new)
    except AlreadyExists:
        raise _taken(name) from None
    return reply.json({"name": name, "description": kept.description})


async def delete(house: House, request: Request, caller: Caller) -> Response:
    """Its jobs stay, and still name it."""
    found = await _asked_for(house, request, caller)
    await house.assets.delete(caller, KIND, found.id)
    return reply.json(None, 202)


async def check_name(house: House, request: Request, caller: Caller) -> Response:
    workspace = body.query_text(request, "workspace_id", DEFAULT_WORKSPACE)
    name = body.query_text(request, "experiment_name")
    found = await house.assets.by_name(caller, KIND, workspace, name)
    return reply.json({"is_duplicate": found is not None})


ROUTES: Routes = [
    ("POST", "/training-experiments", create),
    ("GET", "/training-experiments", find_all),
    ("GET", "/training-experiments/{experiment_id}", show),
    ("PUT", "/training-experiments/{experiment_id}", change),
    ("DELETE", "/training-experiments/{experiment_id}", delete),
    ("GET", "/training-experiment-names", check_name),
]


def _new(house: House, caller: Caller, workspace: str, name: str, description: str) -> Asset:
    now = house.clock()
    return Asset(
        caller.project, KIND, str(uuid.uuid4()), workspace, name, now, now, _keep(_Kept(description))
    )


async def _asked_for(house: House, request: Request, caller: Caller) -> Asset:
    found = await by_id(house, caller, request.path_params["experiment_id"])
    await workspaces.enter(house, caller, found.scope)
    return found


async def _jobs(house: House, caller: Caller, experiment_id: str) -> int:
    return await house.jobs.count(caller, Label(LABEL, "=", experiment_id))


def _document(asset: Asset, jobs: int) -> dict[str, Any]:
    metadata = {
        "id": asset.id,
        "name": asset.name,
        "description": _kept(asset.document).description,
        "workspace_id": asset.scope,
        "create_time": asset.created // 1_000_000,
        "update_time": asset.updated // 1_000_000,
    }
    return {"metadata": metadata, "statistic": {"job_count": jobs}}


def _taken(name: str) -> AlreadyExists:
    return AlreadyExists(
        f"There is a training experiment {name!r} in this workspace already.",
        field="name",
        code=EXPERIMENT_EXISTS,
    )
