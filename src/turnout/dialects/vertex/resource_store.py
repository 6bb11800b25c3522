"""Resources that are only documents: how they are created, shown, changed and deleted.

A document has the fields of its message. Fields that begin with `_` are for relations between resources: no response
has them.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response

from turnout.dialects import Context
from turnout.dialects.vertex import operations, reply, resource_ids, resource_list
from turnout.dialects.vertex.call import Call
from turnout.dialects.vertex.document_filter import Fields, field
from turnout.dialects.vertex.job_list import in_form
from turnout.dialects.vertex.protobuf import codec, field_mask, schema
from turnout.dialects.vertex.protobuf.codec import Decoded
from turnout.dialects.vertex.protobuf.field_path import quoted, snake
from turnout.dialects.vertex.protobuf.times import spell_time
from turnout.dialects.vertex.resource_list import Listed, stored
from turnout.dialects.vertex.wire import Message
from turnout.errors import AlreadyExists, Invalid, NotFound, WrongState
from turnout.job import Asset

_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")

BASE_FIELDS: Fields = {
    "name": ("text", field("name")),
    "display_name": ("text", field("displayName")),
    "labels": ("map", field("labels")),
    "create_time": ("time", field("createTime")),
    "update_time": ("time", field("updateTime")),
}


class Kind(NamedTuple):
    """A kind of resource."""

    name: str
    """`Context`: in messages; in snake case the root of a body's fields."""
    collection: str
    """`contexts`: in addresses and lists."""
    message: type[Message]
    id_parameter: str = ""
    """The parameter of a create that has the id; empty: the service chooses it."""
    id_required: bool = False
    fields: Fields = BASE_FIELDS
    """What filters of lists may compare."""
    children: "tuple[Kind, ...]" = ()
    """Deleted with it."""
    changeable: tuple[str, ...] = ("displayName", "description", "labels")
    listed: str = ""
    """The field of a list's response, if it is not the collection."""
    defaults: Mapping[str, Any] = {}
    """Fields that responses have if the document does not."""

    @property
    def asset(self) -> str:
        return f"vertex-{snake(self.name).lstrip('_').replace('_', '-')}"

    @property
    def root(self) -> str:
        return snake(self.name).lstrip("_")


Check = Callable[[Decoded[Any]], None]


async def create(
    context: Context, call: Call, kind: Kind, parent_kind: Kind | None = None, check: Check | None = None
) -> Asset:
    """`check` raises Invalid for a wrong field. Raises AlreadyExists, and NotFound if the parent does not exist."""
    scope = scope_of(call, call.resource[:-1])
    if parent_kind:
        await find(context, call, parent_kind, call.resource[:-1])
    decoded = codec.decode(call.body, kind.message, kind.root)
    if check:
        check(decoded)
    given = call.query.get(kind.id_parameter, "") if kind.id_parameter else ""
    return await insert(context, call, kind, scope, codec.encode(decoded.message), given)


async def insert(
    context: Context, call: Call, kind: Kind, scope: str, document: dict[str, Any], given: str
) -> Asset:
    """`given`: the id that the caller chose; empty: the service chooses one."""
    if not given and kind.id_required:
        raise Invalid(f"{kind.id_parameter} is required.", field=kind.id_parameter)
    if given and not _ID.fullmatch(given):
        raise Invalid(
            f"{kind.id_parameter}: {quoted(given)} must have letters, digits, '_', '-' and '.', and at most 128"
            " characters.",
            field=kind.id_parameter,
        )
    own = given or resource_ids.new_id(context)
    now = resource_ids.now(context)
    asset = Asset(
        call.caller.project, kind.asset, f"{scope}/{kind.collection}/{own}", scope, own, now, now,
        msgspec.json.encode(document),
    )  # fmt: skip
    try:
        return await context.assets.create(call.caller, asset)
    except AlreadyExists:
        raise AlreadyExists(
            f"The {kind.name} {name_of(asset)} already exists.", field=kind.id_parameter
        ) from None


async def get(context: Context, call: Call, kind: Kind) -> Response:
    return respond(call, kind, await find(context, call, kind, call.resource))


async def list_page(context: Context, call: Call, kind: Kind, parent_kind: Kind | None = None) -> Response:
    """Newest first."""
    if parent_kind:
        await find(context, call, parent_kind, call.resource[:-1])
    scope = scope_of(call, call.resource[:-1])
    listed = Listed(kind.listed or kind.collection, kind.message, kind.asset, scope, kind.fields)
    return await resource_list.list_page(context, call, listed, lambda asset: render(asset, kind))


async def change(
    context: Context,
    call: Call,
    kind: Kind,
    resource: tuple[str, ...],
    edit: Callable[[dict[str, Any]], None],
) -> Asset:
    """Changes the document in place. Raises NotFound, and what `edit` raises."""

    def on_document(document: bytes) -> bytes:
        decoded = msgspec.json.decode(document)
        edit(decoded)
        return msgspec.json.encode(decoded)

    asset_id = scope_of(call, resource)
    try:
        return await context.assets.change(
            call.caller, kind.asset, asset_id, resource_ids.now(context), on_document
        )
    except NotFound:
        raise _missing(call, kind, resource) from None


async def patch(context: Context, call: Call, kind: Kind) -> Asset:
    """Changes the fields of the mask; without a mask, all fields of the request."""
    decoded = codec.decode(call.body, kind.message, kind.root)
    given = codec.encode(decoded.message)
    mask = field_mask.parse(call.query.get("updateMask", ""), kind.message)
    names = list(mask) if mask else [name for name in kind.changeable if name in given]
    for name in names:
        if name not in kind.changeable:
            raise Invalid(
                f"updateMask: {name} cannot be changed; an update changes {', '.join(kind.changeable)}.",
                field="updateMask",
            )
    etag = given.get("etag", "")

    def edit(document: dict[str, Any]) -> None:
        for name in names:
            document.pop(name, None)
            if name in given:
                document[name] = given[name]

    if etag:
        found = await find(context, call, kind, call.resource)
        if etag != etag_of(found, kind):
            error = WrongState(f"etag: the {kind.name} was changed meanwhile.", field="etag")
            error.code = "ABORTED"
            raise error
    return await change(context, call, kind, call.resource, edit)


async def delete(context: Context, call: Call, kind: Kind) -> Response:
    """Deletes the resource with everything in it."""
    asset = await find(context, call, kind, call.resource)
    await _delete(context, call, kind, asset)
    return reply.json(operations.delete_operation(context, call))


async def find(context: Context, call: Call, kind: Kind, resource: tuple[str, ...]) -> Asset:
    """Raises NotFound."""
    try:
        return await context.assets.get(call.caller, kind.asset, scope_of(call, resource)[:600])
    except NotFound:
        raise _missing(call, kind, resource) from None


def respond(call: Call, kind: Kind, asset: Asset) -> Response:
    return reply.json(in_form(call, shown(render(asset, kind)), kind.message))


def render(asset: Asset, kind: Kind) -> dict[str, Any]:
    """The resource. Filters also read its relations."""
    resource = {"name": name_of(asset)} | dict(kind.defaults) | stored(asset)
    own = {
        "createTime": spell_time(asset.created),
        "updateTime": spell_time(asset.updated),
        "etag": etag_of(asset, kind),
    }
    names = schema.of(kind.message).by_name
    return resource | {name: value for name, value in own.items() if name in names}


def shown(resource: dict[str, Any]) -> dict[str, Any]:
    """The document without its relations."""
    return {name: value for name, value in resource.items() if not name.startswith("_")}


def etag_of(asset: Asset, kind: Kind) -> str:
    """Of the fields that an update can change. New relations do not change it: the SDK does not read it again."""
    document = stored(asset)
    changeable = [document.get(name) for name in kind.changeable]
    return hashlib.blake2b(msgspec.json.encode(changeable), digest_size=12).hexdigest()


def scope_of(call: Call, resource: tuple[str, ...]) -> str:
    """`us-central1/metadataStores/default`."""
    return "/".join((call.location, *resource))


def name_of(asset: Asset) -> str:
    location, _, rest = asset.id.partition("/")
    return f"projects/{asset.project}/locations/{location}/{rest}"


async def _delete(context: Context, call: Call, kind: Kind, asset: Asset) -> None:
    for child in kind.children:
        async for assets in resource_list.pieces(context, call, child.asset, asset.id):
            for one in assets:
                await _delete(context, call, child, one)
    await context.assets.delete(call.caller, kind.asset, asset.id)


def _missing(call: Call, kind: Kind, resource: tuple[str, ...]) -> NotFound:
    return NotFound(f"The {kind.name} {call.parent}/{'/'.join(resource)[:300]} does not exist.")
