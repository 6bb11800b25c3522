"""Lists of resources that are assets: pages of documents, newest first, that a filter selects."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response

from turnout.dialects import Context
from turnout.dialects.vertex import paging, reply
from turnout.dialects.vertex.call import Call
from turnout.dialects.vertex.document_filter import Fields, parse
from turnout.dialects.vertex.job_list import in_form
from turnout.dialects.vertex.protobuf import field_mask
from turnout.dialects.vertex.wire import Message
from turnout.errors import Invalid
from turnout.job import Asset

_ROWS_AT_ONCE = 200
"""Assets that are read and decoded between two requests of other callers."""

_ORDERS = ("create_time desc", "createTime desc", "")

Render = Callable[[Asset], dict[str, Any] | None]


class Listed(NamedTuple):
    """The resources that a list shows."""

    name: str
    """The field of the response: `models`."""
    message: type[Message]
    kind: str
    """The kind of the assets."""
    scope: str
    fields: Fields
    """The fields that its filter may compare."""


async def list_page(
    context: Context,
    call: Call,
    listed: Listed,
    render: Render,
    prepare: Callable[[list[Asset]], Awaitable[None]] | None = None,
) -> Response:
    """`render` returns None for what the list does not show. `prepare` gets the assets before they are rendered."""
    text = call.query.get("filter", "")
    if call.query.get("orderBy"):
        raise Invalid(
            "orderBy is not supported: lists show the newest first, and the SDK sorts them itself.",
            field="orderBy",
        )
    accepts = parse(text, listed.fields)
    listing = paging.Listing(call.caller.project, f"{listed.kind}/{listed.scope}", text)
    secret = context.keys.root.secret.encode()
    size = paging.page_size(call.query.get("pageSize", ""))
    before = paging.read_token(secret, listing, call.query.get("pageToken", ""))
    read_mask = field_mask.parse(call.query.get("readMask", ""), listed.message)
    resources: list[dict[str, Any]] = []
    last: int | None = None
    more = False
    async for assets in pieces(context, call, listed.kind, listed.scope, before):
        if prepare:
            await prepare(assets)
        for asset in assets:
            document = render(asset)
            if document is None or not accepts(document):
                continue
            if len(resources) == size:
                more = True
                break
            visible = {name: value for name, value in document.items() if not name.startswith("_")}
            resources.append(in_form(call, visible, listed.message, read_mask))
            last = asset.created
        if more:
            break
    page: dict[str, Any] = {listed.name: resources} if resources else {}
    if more and last is not None:
        page["nextPageToken"] = paging.make_token(secret, listing, last)
    return reply.json(page)


def page_of(
    context: Context,
    call: Call,
    name: str,
    message: type[Message],
    scope: str,
    fields: Fields,
    resources: list[dict[str, Any]],
) -> Response:
    """A page of a list that is in memory already. Its tokens count."""
    text = call.query.get("filter", "")
    accepts = parse(text, fields)
    listing = paging.Listing(call.caller.project, f"{name}/{scope}", text)
    secret = context.keys.root.secret.encode()
    size = paging.page_size(call.query.get("pageSize", ""))
    start = paging.read_token(secret, listing, call.query.get("pageToken", "")) or 0
    read_mask = field_mask.parse(call.query.get("readMask", ""), message)
    found = [document for document in resources if accepts(document)]
    shown = [in_form(call, document, message, read_mask) for document in found[start : start + size]]
    page: dict[str, Any] = {name: shown} if shown else {}
    if len(found) > start + size:
        page["nextPageToken"] = paging.make_token(secret, listing, start + size)
    return reply.json(page)


async def pieces(
    context: Context, call: Call, kind: str, scope: str, before: int | None = None
) -> AsyncIterator[list[Asset]]:
    """All assets of a kind in a scope, newest first."""
    while True:
        found = await context.assets.find(
            call.caller, kind, scope=scope, limit=_ROWS_AT_ONCE, created_before=before
        )
        if found:
            yield found
            before = found[-1].created
        if len(found) < _ROWS_AT_ONCE:
            return


def stored(asset: Asset) -> dict[str, Any]:
    return msgspec.json.decode(asset.document)
