"""The list call of every kind of job, and a resource in the form that the caller requested."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from starlette.responses import Response

from turnout.dialects import Context
from turnout.dialects.vertex import job_filter, paging, reply
from turnout.dialects.vertex.call import Call
from turnout.dialects.vertex.protobuf import enum_numbers, field_mask
from turnout.dialects.vertex.protobuf.field_mask import Mask
from turnout.dialects.vertex.wire import Message
from turnout.job import All, Page, Query
from turnout.service import JobView

RenderItem = Callable[[JobView, Mask | None], Awaitable[dict[str, Any]]]


class Collection(NamedTuple):
    """The jobs of one kind in one location."""

    name: str
    """`customJobs`: the field of the response."""
    message: type[Message]
    query: Query
    """Selects the jobs: by their scope."""
    token_location: str
    """The location for which page tokens are valid; also tells apart the kinds of jobs."""
    parse: Callable[[str], Query] = job_filter.parse
    """Parses the filter."""


async def list_page(
    context: Context, call: Call, collection: Collection, render_item: RenderItem
) -> Response:
    """A page of the jobs, newest first."""
    text = call.query.get("filter", "")
    listing = paging.Listing(call.caller.project, collection.token_location, text)
    secret = context.keys.root.secret.encode()
    size = paging.page_size(call.query.get("pageSize", ""))
    before = paging.read_token(secret, listing, call.query.get("pageToken", ""))
    read_mask = field_mask.parse(call.query.get("readMask", ""), collection.message)
    query = All(collection.query, collection.parse(text))
    # One more than the page holds, to know whether there is a next page.
    views = await context.jobs.find(call.caller, query, Page(limit=size + 1, before_id=before))
    resources = [
        in_form(call, await render_item(view, read_mask), collection.message, read_mask)
        for view in views[:size]
    ]
    page: dict[str, Any] = {collection.name: resources} if resources else {}
    if len(views) > size:
        page["nextPageToken"] = paging.make_token(secret, listing, views[size - 1].job.id)
    return reply.json(page)


def in_form(
    call: Call, document: dict[str, Any], message: type[Message], read_mask: Mask | None = None
) -> dict[str, Any]:
    """The fields that the mask selects, with enums as names or as numbers, whichever the caller requested."""
    resource = field_mask.apply(read_mask, document)
    return enum_numbers.apply(resource, message) if call.numbers else resource
