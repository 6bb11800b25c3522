"""Stores new models and new versions of models."""

from typing import Any, NamedTuple

import msgspec

from turnout.dialects import Context
from turnout.dialects.vertex import resource_ids
from turnout.dialects.vertex.models import names, registry
from turnout.dialects.vertex.models.names import ModelName
from turnout.dialects.vertex.models.registry import StoredModel, Version
from turnout.dialects.vertex.models.wire import Model
from turnout.dialects.vertex.protobuf import codec
from turnout.errors import AlreadyExists, NotFound
from turnout.job import Asset
from turnout.service import Caller

KIND = "vertex-model"
_OWN = ("displayName", "description", "labels", "versionAliases", "versionDescription", "etag")
"""The fields of a Model that are not in `Version.fields`."""


class NewVersion(NamedTuple):
    model: Model
    location: str
    parent: ModelName | None = None
    """The model that gets the version; None: a new model."""
    model_id: str = ""
    pipeline: str = ""
    copied_from: str = ""


async def create(context: Context, caller: Caller, new: NewVersion) -> ModelName:
    """The name with the new version. For one pipeline it makes one version, however often it is called.

    Raises NotFound if there is no such parent, AlreadyExists if the id is taken.
    """
    version = _version(context, new)
    if new.parent:
        return await _add(context, caller, new.parent, version)
    name = ModelName(caller.project, new.location, new.model_id or resource_ids.new_id(context), version="1")
    stored = StoredModel(
        new.model.display_name,
        version.created,
        version.created,
        new.model.description,
        labels=new.model.labels,
    )
    version.labels = {}
    registry.add(stored, version)
    asset = Asset(
        caller.project, KIND, name.asset, name.location, name.id, version.created, version.created,
        msgspec.json.encode(stored),
    )  # fmt: skip
    try:
        await context.assets.create(caller, asset)
    except AlreadyExists:
        made = (await find(context, caller, name)).made_by(new.pipeline) if new.pipeline else None
        if made is None:
            raise AlreadyExists(f"The Model {name.model} already exists.", field="modelId") from None
        return name._replace(version=made.id)
    return name


async def find(context: Context, caller: Caller, name: ModelName) -> StoredModel:
    """Raises NotFound."""
    return registry.decode((await asset_of(context, caller, name)).document)


async def asset_of(context: Context, caller: Caller, name: ModelName) -> Asset:
    try:
        return await context.assets.get(caller, KIND, name.asset)
    except NotFound:
        raise NotFound(f"The Model {name.model} does not exist.") from None


async def check_free(context: Context, caller: Caller, location: str, model_id: str, field: str) -> None:
    """Raises AlreadyExists or Invalid."""
    names.check_id(model_id, field)
    name = ModelName(caller.project, location, model_id)
    try:
        await asset_of(context, caller, name)
    except NotFound:
        return
    raise AlreadyExists(f"{field}: the Model {name.model} already exists.", field=field)


async def _add(context: Context, caller: Caller, parent: ModelName, version: Version) -> ModelName:
    number = ""

    def change(document: bytes) -> bytes:
        nonlocal number
        stored = registry.decode(document)
        made = stored.made_by(version.pipeline) if version.pipeline else None
        number = (made or registry.add(stored, msgspec.structs.replace(version))).id
        return msgspec.json.encode(stored)

    try:
        await context.assets.change(caller, KIND, parent.asset, version.created, change)
    except NotFound:
        raise NotFound(f"The Model {parent.model} does not exist.") from None
    return parent._replace(version=number)


def _version(context: Context, new: NewVersion) -> Version:
    fields: dict[str, Any] = codec.encode(new.model)
    at = resource_ids.now(context)
    return Version(
        id="",
        created=at,
        updated=at,
        aliases=list(new.model.version_aliases),
        description=new.model.version_description,
        labels=dict(new.model.labels),
        pipeline=new.pipeline,
        copied_from=new.copied_from,
        fields={name: value for name, value in fields.items() if name not in _OWN},
    )
