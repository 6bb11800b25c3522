"""Training experiments, which group jobs under a name."""

import uuid
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnout.dialects.modelarts import asset_lists, fields, reply, wire
from turnout.dialects.modelarts.account import workspaces
from turnout.dialects.modelarts.context import Context, Routes
from turnout.dialects.modelarts.errors import EXPERIMENT_EXISTS, NO_SUCH_EXPERIMENT
from turnout.dialects.modelarts.names import DEFAULT_WORKSPACE
from turnout.errors import AlreadyExists, NotFound
from turnout.job import Asset, Label
from turnout.service import Caller

KIND = "experiment"
LABEL = "training_experiment_id"
_NAME = r"[\w-]{1,64}"
_NAME_RULE = "1 to 64 letters, digits, - or _"
MAX_LIMIT = 100


class _Metadata(msgspec.Struct):
    name: str
    description: str | None = None
    workspace_id: str | None = None


class _ExperimentBody(msgspec.Struct):
    metadata: _Metadata


class _ExperimentUpdate(msgspec.Struct):
    name: str | None = None
    description: str | None = None


class _StoredExperiment(msgspec.Struct):
    description: str = ""


_encode = msgspec.json.Encoder().encode
_stored = msgspec.json.Decoder(_StoredExperiment).decode


async def by_id(context: Context, caller: Caller, experiment_id: str) -> Asset:
    try:
        return await context.assets.get(caller, KIND, experiment_id)
    except NotFound:
        raise NotFound(
            f"The training experiment {experiment_id!r} does not exist.",
            field="experiment_id",
            code=NO_SUCH_EXPERIMENT,
        ) from None


async def by_name(
    context: Context, caller: Caller, workspace: str, body: wire.Experiment
) -> tuple[Asset, bool]:
    """Returns the experiment of that name and False, or one that must be created and True."""
    field = "metadata.training_experiment_reference"
    name = fields.text(f"{field}.name", body.name, 64, _NAME, _NAME_RULE)
    found = await context.assets.by_name(caller, KIND, workspace, name)
    if found:
        return found, False
    return _new(
        context, caller, workspace, name, fields.text(f"{field}.description", body.description, 256)
    ), True


async def create(context: Context, request: Request, caller: Caller) -> Response:
    body = (await fields.read(request, _ExperimentBody)).metadata
    workspace = body.workspace_id or DEFAULT_WORKSPACE
    await workspaces.check_access(context, caller, workspace)
    name = fields.text("metadata.name", body.name, 64, _NAME, _NAME_RULE)
    description = fields.text("metadata.description", body.description, 256)
    try:
        created = await context.assets.create(caller, _new(context, caller, workspace, name, description))
    except AlreadyExists:
        raise _exists(name) from None
    return reply.json(_document(created, 0), 201)


async def list_all(context: Context, request: Request, caller: Caller) -> Response:
    workspace = fields.query_text(request.query_params, "workspace_id", DEFAULT_WORKSPACE)
    await workspaces.check_access(context, caller, workspace)
    page = await asset_lists.read_page(context, request, caller, KIND, workspace, MAX_LIMIT)
    items = [_document(asset, await _job_count(context, caller, asset.id)) for asset in page.assets]
    return reply.json(page.head | {"items": items})


async def show(context: Context, request: Request, caller: Caller) -> Response:
    found = await _from_path(context, request, caller)
    return reply.json(_document(found, await _job_count(context, caller, found.id)))


async def change(context: Context, request: Request, caller: Caller) -> Response:
    body = await fields.read(request, _ExperimentUpdate)
    old = await _from_path(context, request, caller)
    name = old.name if body.name is None else fields.text("name", body.name, 64, _NAME, _NAME_RULE)
    stored = _stored(old.document)
    if body.description is not None:
        stored.description = fields.text("description", body.description, 256)
    new = msgspec.structs.replace(
        old, name=name, updated=max(context.clock(), old.updated), document=_encode(stored)
    )
    try:
        await context.assets.update(caller, new)
    except AlreadyExists:
        raise _exists(name) from None
    return reply.json({"name": name, "description": stored.description})


async def delete(context: Context, request: Request, caller: Caller) -> Response:
    """The experiment's jobs stay, with its name."""
    found = await _from_path(context, request, caller)
    await context.assets.delete(caller, KIND, found.id)
    return reply.json(None, 202)


async def check_name(context: Context, request: Request, caller: Caller) -> Response:
    workspace = fields.query_text(request.query_params, "workspace_id", DEFAULT_WORKSPACE)
    name = fields.query_text(request.query_params, "experiment_name")
    found = await context.assets.by_name(caller, KIND, workspace, name)
    return reply.json({"is_duplicate": found is not None})


ROUTES: Routes = [
    ("POST", "/training-experiments", create),
    ("GET", "/training-experiments", list_all),
    ("GET", "/training-experiments/{experiment_id}", show),
    ("PUT", "/training-experiments/{experiment_id}", change),
    ("DELETE", "/training-experiments/{experiment_id}", delete),
    ("GET", "/training-experiment-names", check_name),
]


def _new(context: Context, caller: Caller, workspace: str, name: str, description: str) -> Asset:
    now = context.clock()
    return Asset(
        caller.project,
        KIND,
        str(uuid.uuid4()),
        workspace,
        name,
        now,
        now,
        _encode(_StoredExperiment(description)),
    )


async def _from_path(context: Context, request: Request, caller: Caller) -> Asset:
    found = await by_id(context, caller, request.path_params["experiment_id"])
    await workspaces.check_access(context, caller, found.scope)
    return found


async def _job_count(context: Context, caller: Caller, experiment_id: str) -> int:
    return await context.jobs.count(caller, Label(LABEL, "=", experiment_id))


def _document(asset: Asset, jobs: int) -> dict[str, Any]:
    metadata = {
        "id": asset.id,
        "name": asset.name,
        "description": _stored(asset.document).description,
        "workspace_id": asset.scope,
        "create_time": asset.created // 1_000_000,
        "update_time": asset.updated // 1_000_000,
    }
    return {"metadata": metadata, "statistic": {"job_count": jobs}}


def _exists(name: str) -> AlreadyExists:
    return AlreadyExists(
        f"A training experiment {name!r} already exists in this workspace.",
        field="name",
        code=EXPERIMENT_EXISTS,
    )
