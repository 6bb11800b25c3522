"""Tags of training jobs. They are stored as labels."""

import re
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnout.dialects.modelarts import fields, reply
from turnout.dialects.modelarts.account import workspaces
from turnout.dialects.modelarts.context import Context, Routes
from turnout.dialects.modelarts.errors import INVALID
from turnout.dialects.modelarts.jobs import lookup
from turnout.dialects.modelarts.names import DEFAULT_WORKSPACE, DIALECT, scope_of
from turnout.errors import Invalid
from turnout.job import All, Compare, Label, Not, Page, Query, to_uuid
from turnout.service import Caller, JobView

PREFIX = "tag:"
TAGGED = "tagged"
"""The label of jobs with at least one tag, because queries need a label's whole key."""

_MAX_TAGS = 20
_BATCH = 500
_KEY = re.compile(r"(?!_sys_)[\w.:=+@-]([\w .:=+@-]*[\w.:=+@-])?")
_VALUE = re.compile(r"[\w ./:=+@-]*")


class _Tag(msgspec.Struct):
    key: str
    value: str | None = None


class _Tags(msgspec.Struct):
    tags: list[_Tag]


class _TagFilter(msgspec.Struct):
    key: str
    values: list[str] | None = None


class _NameMatch(msgspec.Struct):
    key: str
    value: str


class _TagQuery(msgspec.Struct):
    workspace_id: str | None = None
    tags: list[_TagFilter] | None = None
    without_any_tag: bool | None = None
    matches: list[_NameMatch] | None = None


class _PageRange(NamedTuple):
    limit: int
    offset: int


def of_labels(labels: dict[str, str]) -> list[dict[str, str]]:
    tags = {key.removeprefix(PREFIX): value for key, value in labels.items() if key.startswith(PREFIX)}
    return [{"key": key, "value": value} for key, value in sorted(tags.items())]


async def create(context: Context, request: Request, caller: Caller) -> Response:
    body = await fields.read(request, _Tags)
    view = await lookup.job(context, request, caller)
    new = {PREFIX + _key(tag.key): _value(tag.value) for tag in body.tags}
    async with lookup.lock(view):
        labels = await _labels(context, view) | new
        if sum(key.startswith(PREFIX) for key in labels) > _MAX_TAGS:
            raise Invalid(f"tags: a job can have at most {_MAX_TAGS} tags.", field="tags", code=INVALID)
        await _put(context, caller, view, labels)
    return reply.no_content()


async def delete(context: Context, request: Request, caller: Caller) -> Response:
    """Deletes tags by key. A tag with another value than the given one stays. Missing tags are ignored."""
    body = await fields.read(request, _Tags)
    view = await lookup.job(context, request, caller)
    async with lookup.lock(view):
        labels = await _labels(context, view)
        for tag in body.tags:
            if tag.value in (None, "", labels.get(PREFIX + tag.key)):
                labels.pop(PREFIX + tag.key, None)
        await _put(context, caller, view, labels)
    return reply.no_content()


async def show(context: Context, request: Request, caller: Caller) -> Response:
    view = await lookup.job(context, request, caller)
    return reply.json({"tags": of_labels(await _labels(context, view))})


async def list_all(context: Context, request: Request, caller: Caller) -> Response:
    """All tag keys of the project's jobs, each with all its values."""
    page = _page_range(request)
    tagged = All(Compare("dialect", "=", DIALECT), Not(Label(TAGGED, "=", None)))
    values: dict[str, set[str]] = {}
    last: int | None = None
    while jobs := await context.jobs.find(caller, tagged, Page(_BATCH, before_id=last)):
        last = jobs[-1].job.id
        for labels in (await context.jobs.labels([view.job.id for view in jobs])).values():
            for tag in of_labels(labels):
                values.setdefault(tag["key"], set()).add(tag["value"])
    keys = sorted(values)[page.offset : page.offset + page.limit]
    return reply.json({"tags": [{"key": key, "values": sorted(values[key])} for key in keys]})


async def find_jobs(context: Context, request: Request, caller: Caller) -> Response:
    page = _page_range(request)
    query = await _query(context, request, caller)
    views = await context.jobs.find(caller, query, Page(page.limit, page.offset))
    labels = await context.jobs.labels([view.job.id for view in views])
    resources = [_resource(view, labels.get(view.job.id, {})) for view in views]
    return reply.json({"resources": resources, "total_count": await context.jobs.count(caller, query)})


async def count_jobs(context: Context, request: Request, caller: Caller) -> Response:
    _page_range(request)
    query = await _query(context, request, caller)
    return reply.json({"total_count": await context.jobs.count(caller, query)})


_JOBS = "/modelarts-training-job"
ROUTES: Routes = [
    ("POST", _JOBS + "/{training_job_id}/tags/create", create),
    ("DELETE", _JOBS + "/{training_job_id}/tags/delete", delete),
    ("GET", _JOBS + "/{training_job_id}/tags", show),
    ("GET", _JOBS + "/tags", list_all),
    ("POST", _JOBS + "/resource-instances/filter", find_jobs),
    ("POST", _JOBS + "/resource-instances/count", count_jobs),
]


async def _labels(context: Context, view: JobView) -> dict[str, str]:
    return dict((await context.jobs.labels([view.job.id])).get(view.job.id, {}))


async def _put(context: Context, caller: Caller, view: JobView, labels: dict[str, str]) -> None:
    labels.pop(TAGGED, None)
    if any(key.startswith(PREFIX) for key in labels):
        labels[TAGGED] = "yes"
    await context.jobs.amend(caller, view.job.id, labels=labels)


async def _query(context: Context, request: Request, caller: Caller) -> Query:
    body = await fields.read(request, _TagQuery)
    workspace = body.workspace_id or DEFAULT_WORKSPACE
    await workspaces.check_access(context, caller, workspace)
    parts: list[Query] = [Compare("scope", "=", scope_of(workspace))]
    if body.without_any_tag:
        parts.append(Label(TAGGED, "=", None))
    for tag in body.tags or []:
        values = tuple(_value(value) for value in tag.values or ())
        key = PREFIX + _key(tag.key)
        parts.append(Label(key, "in", values) if values else Not(Label(key, "=", None)))
    for match in body.matches or []:
        if match.key != "resource_name":
            raise Invalid(
                f"matches[].key must be resource_name, not {match.key!r}.", field="matches", code=INVALID
            )
        parts.append(Compare("name", "contains", fields.text("matches[].value", match.value, 255)))
    return All(*parts)


def _page_range(request: Request) -> _PageRange:
    return _PageRange(
        fields.number(request.query_params, "limit", 1000, 1, 1000),
        fields.number(request.query_params, "offset", 0, 0, fields.MAX_PAGE),
    )


def _resource(view: JobView, labels: dict[str, str]) -> dict[str, Any]:
    return {
        "resource_id": to_uuid(view.job.id),
        "resource_name": view.job.name,
        "resource_detail": {},
        "workspace_id": view.job.scope.partition(":")[2],
        "tags": of_labels(labels),
    }


def _key(key: str) -> str:
    if len(key) > 128 or not _KEY.fullmatch(key):
        raise Invalid(
            f"tags[].key must have 1 to 128 letters, digits, inner spaces or _.:=+-@, and not begin with _sys_; "
            f"{key[:140]!r} does not.",
            field="tags",
            code=INVALID,
        )
    return key


def _value(value: str | None) -> str:
    value = value or ""
    if len(value) > 255 or not _VALUE.fullmatch(value):
        raise Invalid(
            f"tags[].value must have at most 255 letters, digits, spaces or _.:/=+-@; {value[:270]!r} does not.",
            field="tags",
            code=INVALID,
        )
    return value
