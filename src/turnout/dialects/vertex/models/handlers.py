"""Models: upload, get, list, update, copy, export, delete, and the versions of a model."""

from collections.abc import Callable
from typing import Any

import msgspec
from starlette.responses import Response

from turnout.dialects import Context
from turnout.dialects.vertex import operations, reply, resource_ids, resource_list
from turnout.dialects.vertex.call import Call
from turnout.dialects.vertex.document_filter import Fields, field
from turnout.dialects.vertex.job_list import in_form
from turnout.dialects.vertex.models import names, registry, render, update, validate, versions
from turnout.dialects.vertex.models.names import ModelName
from turnout.dialects.vertex.models.registry import StoredModel
from turnout.dialects.vertex.models.versions import KIND, NewVersion
from turnout.dialects.vertex.models.wire import (
    CopyModelRequest,
    MergeVersionAliasesRequest,
    Model,
    UploadModelRequest,
)
from turnout.dialects.vertex.protobuf import codec
from turnout.dialects.vertex.protobuf.field_path import FieldPath
from turnout.dialects.vertex.resource_list import Listed
from turnout.errors import Invalid, Unsupported
from turnout.job import Asset

FIELDS: Fields = {
    "display_name": ("text", field("displayName")),
    "model": ("text", lambda document: document["name"].rpartition("/")[2].partition("@")[0]),
    "version_id": ("text", field("versionId")),
    "version_aliases": ("list", field("versionAliases")),
    "labels": ("map", field("labels")),
    "create_time": ("time", field("createTime")),
    "update_time": ("time", field("updateTime")),
}


async def upload(context: Context, call: Call) -> Response:
    """A new model or, with `parentModel`, a new version of one."""
    decoded = codec.decode(call.body, UploadModelRequest, "upload_model_request")
    request, path = decoded
    if request.model is None:
        raise (path / "model").missing()
    validate.model(request.model, path / "model", call.location)
    _no_account(request.service_account, path / "serviceAccount")
    model_id, parent = request.model_id, None
    if request.parent_model:
        if model_id:
            raise (path / "modelId").invalid(
                "a new version of parentModel has the id of that model: omit one."
            )
        parent = names.parse(request.parent_model, call, (path / "parentModel").as_sent)
    elif model_id:
        await versions.check_free(context, call.caller, call.location, model_id, (path / "modelId").as_sent)
    new = NewVersion(request.model, call.location, parent, model_id)
    name = await versions.create(context, call.caller, new)
    return await _made(context, call, name, "UploadModel")


async def copy(context: Context, call: Call) -> Response:
    """The copy names the artifacts of the source: nothing is copied in the bucket."""
    request, path = codec.decode(call.body, CopyModelRequest, "copy_model_request")
    _no_account(request.custom_service_account, path / "customServiceAccount")
    if not request.source_model:
        raise (path / "sourceModel").missing()
    source = names.parse(request.source_model, call, (path / "sourceModel").as_sent)
    stored = await versions.find(context, call.caller, source)
    version = registry.version_of(stored, source.version, source.model)
    parent = None
    if request.parent_model:
        parent = names.parse(request.parent_model, call, (path / "parentModel").as_sent)
    elif request.model_id:
        field_name = (path / "modelId").as_sent
        await versions.check_free(context, call.caller, call.location, request.model_id, field_name)
    document = version.fields | {
        "displayName": stored.display_name,
        "description": stored.description,
        "labels": stored.labels | version.labels,
        "versionDescription": version.description,
    }
    model = codec.decode(msgspec.json.encode(document), Model, "model").message
    if request.encryption_spec:
        model.encryption_spec = request.encryption_spec
        validate.model(model, path, call.location)
    new = NewVersion(
        model, call.location, parent, request.model_id, copied_from=f"{source.model}@{version.id}"
    )
    name = await versions.create(context, call.caller, new)
    return await _made(context, call, name, "CopyModel")


async def get(context: Context, call: Call) -> Response:
    """A name without a version means the default version."""
    name = names.of_call(call)
    stored = await versions.find(context, call.caller, name)
    return reply.json(in_form(call, _resource(name, stored), Model))


async def list_models(context: Context, call: Call) -> Response:
    """The default version of each model of one location, the newest model first."""

    def item(asset: Asset) -> dict[str, Any] | None:
        name = ModelName(call.caller.project, call.location, asset.name)
        return _resource(name, registry.decode(asset.document))

    listed = Listed("models", Model, KIND, call.location, FIELDS)
    return await resource_list.list_page(context, call, listed, item)


async def list_versions(context: Context, call: Call) -> Response:
    """All versions, the newest first."""
    name = names.of_call(call)
    asset = await versions.asset_of(context, call.caller, name)
    stored = registry.decode(asset.document)
    resources = [render.model(name, stored, one, versioned=True) for one in reversed(stored.versions)]
    return resource_list.page_of(context, call, "models", Model, name.asset, FIELDS, resources)


async def patch(context: Context, call: Call) -> Response:
    """With a version in the name: what belongs to the version. Without one: what belongs to the model."""
    name = names.of_call(call)
    change = update.of_request(call, name, resource_ids.now(context))
    stored = await _change(context, call, name, change)
    return reply.json(in_form(call, _resource(name, stored), Model))


async def merge_aliases(context: Context, call: Call) -> Response:
    name = names.of_call(call)
    request, path = codec.decode(call.body, MergeVersionAliasesRequest, "merge_version_aliases_request")
    if not request.version_aliases:
        raise (path / "versionAliases").missing()
    if not name.version:
        raise Invalid("name: it must have a version, models/{model}@{version}.", field="name")
    now = resource_ids.now(context)
    number = ""

    def change(stored: StoredModel) -> None:
        nonlocal number
        version = registry.version_of(stored, name.version, name.model)
        number = version.id
        registry.merge_aliases(stored, version, request.version_aliases, now)

    stored = await _change(context, call, name, change)
    return reply.json(in_form(call, _resource(name._replace(version=number), stored), Model))


async def delete(context: Context, call: Call) -> Response:
    """All versions of a model. Its artifacts stay in the bucket."""
    name = names.of_call(call)
    if name.version:
        raise Invalid("name: use :deleteVersion to delete one version of a model.", field="name")
    await versions.asset_of(context, call.caller, name)
    await context.assets.delete(call.caller, KIND, name.asset)
    return reply.json(operations.delete_operation(context, call))


async def delete_version(context: Context, call: Call) -> Response:
    name = names.of_call(call)
    if not name.version:
        raise Invalid("name: it must have a version, models/{model}@{version}.", field="name")

    def change(stored: StoredModel) -> None:
        version = registry.version_of(stored, name.version, name.model)
        registry.delete_version(stored, version, name.model)

    await _change(context, call, name, change)
    return reply.json(operations.delete_operation(context, call))


async def _change(
    context: Context, call: Call, name: ModelName, change: Callable[[StoredModel], None]
) -> StoredModel:
    changed: list[StoredModel] = []

    def on_document(document: bytes) -> bytes:
        stored = registry.decode(document)
        change(stored)
        changed[:] = [stored]
        return msgspec.json.encode(stored)

    await versions.asset_of(context, call.caller, name)  # for its error
    await context.assets.change(call.caller, KIND, name.asset, resource_ids.now(context), on_document)
    return changed[0]


def _no_account(account: str, path: FieldPath) -> None:
    if account:
        raise Unsupported(
            f"{path.as_sent} is not supported: the caller's own rights decide.", field=path.as_sent
        )


async def _made(context: Context, call: Call, name: ModelName, operation: str) -> Response:
    response = {"model": name.model, "modelVersionId": name.version}
    done = await operations.finished(
        context, call, f"{operation}Response", response, metadata=f"{operation}OperationMetadata"
    )
    return reply.json(done)


def _resource(name: ModelName, stored: StoredModel) -> dict[str, Any]:
    version = registry.version_of(stored, name.version, name.model)
    return render.model(name, stored, version, versioned=bool(name.version))
