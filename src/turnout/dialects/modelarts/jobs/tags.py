"""Tags of training jobs: kept as labels, so that jobs are found by them."""

import re
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnout.dialects.modelarts import body, find, reply, workspaces
from turnout.dialects.modelarts.body import DEFAULT_WORKSPACE
from turnout.dialects.modelarts.errors import INVALID
from turnout.dialects.modelarts.house import House, Routes
from turnout.errors import Invalid
from turnout.job import All, Compare, Label, Not, Page, Query, to_uuid
from turnout.service import Caller, JobView

PREFIX = "tag:"
TAGGED = "tagged"
"""The label of jobs that have any: labels are looked up by their whole key."""

_MOST = 20
_BATCH = 500
_KEY = re.compile(r"(?!_sys_)[\w.:=+@-]([\w .:=+@-]*[\w.:=+@-])?")
_VALUE = re.compile(r"[\w ./:=+@-]*")


class _Tag(msgspec.Struct):
    key: str
    value: str | None = None


class _Tags(msgspec.Struct):
    tags: list[_Tag]


class _Wanted(msgspec.Struct):
    key: str
    values: list[str] | None = None


class _Match(msgspec.Struct):
    key: str
    value: str


class _Search(msgspec.Struct):
    workspace_id: str | None = None
    tags: list[_Wanted] | None = None
    without_any_tag: bool | None = None
    matches: list[_Match] | None = None


class _Part(NamedTuple):
    limit: int
    offset: int


def of_labels(labels: dict[str, str]) -> list[dict[str, str]]:
    tags = {key.removeprefix(PREFIX): value for key, value in labels.items() if key.startswith(PREFIX)}
    return [{"key": key, "value": value} for key, value in sorted(tags.items())]


async def create(house: House, request: Request, caller: Caller) -> Response:
    asked = await body.read(request, _Tags)
    view = await find.job(house, request, caller)
    new = {PREFIX + _key(tag.key): _value(tag.value) for tag in asked.tags}
    async with find.turn(view):
        labels = await _labels(house, view) | new
        if sum(key.startswith(PREFIX) for key in labels) > _MOST:
            raise Invalid(f"tags: a job may have {_MOST}.", field="tags", code=INVALID)
        await _put(house, caller, view, labels)
    return reply.nothing()


async def delete(house: House, request: Request, caller: Caller) -> Response:
    """Tags by their key; one that has another value than was said stays. Those that are not there are gone already."""
    asked = await body.read(request, _Tags)
    view = await find.job(house, request, caller)
    async with find.turn(view):
        labels = await _labels(house, view)
        for tag in asked.tags:
            if tag.value in (None, "", labels.get(PREFIX + tag.key)):
                labels.pop(PREFIX + tag.key, None)
        await _put(house, caller, view, labels)
    return reply.nothing()


async def show(house: House, request: Request, caller: Caller) -> Response:
    view = await find.job(house, request, caller)
    return reply.json({"tags": of_labels(await _labels(house, view))})


async def find_all(house: House, request: Request, caller: Caller) -> Response:
    """All keys of the project's jobs, each with all its values."""
    part = _part(request)
    tagged = All(Compare("dialect", "=", find.DIALECT), Not(Label(TAGGED, "=", None)))
    values: dict[str, set[str]] = {}
    last: int | None = None
    while jobs := await house.jobs.find(caller, tagged, Page(_BATCH, before_id=last)):
        last = jobs[-1].job.id
        for labels in (await house.jobs.labels([view.job.id for view in jobs])).values():
            for tag in of_labels(labels):
                values.setdefault(tag["key"], set()).add(tag["value"])
    keys = sorted(values)[part.offset : part.offset + part.limit]
    return reply.json({"tags": [{"key": key, "values": sorted(values[key])} for key in keys]})


async def search(house: House, request: Request, caller: Caller) -> Response:
    part = _part(request)
    query = await _query(house, request, caller)
    views = await house.jobs.find(caller, query, Page(part.limit, part.offset))
    labels = await house.jobs.labels([view.job.id for view in views])
    resources = [_resource(view, labels.get(view.job.id, {})) for view in views]
    return reply.json({"resources": resources, "total_count": await house.jobs.count(caller, query)})


async def count(house: House, request: Request, caller: Caller) -> Response:
    _part(request)
    query = await _query(house, request, caller)
    return reply.json({"total_count": await house.jobs.count(caller, query)})


_JOBS = "/modelarts-training-job"
ROUTES: Routes = [
    ("POST", _JOBS + "/{training_job_id}/tags/create", create),
    ("DELETE", _JOBS + "/{training_job_id}/tags/delete", delete),
    ("GET", _JOBS + "/{training_job_id}/tags", show),
    ("GET", _JOBS + "/tags", find_all),
    ("POST", _JOBS + "/resource-instances/filter", search),
    ("POST", _JOBS + "/resource-instances/count", count),
]


async def _labels(house: House, view: JobView) -> dict[str, str]:
    return dict((await house.jobs.labels([view.job.id])).get(view.job.id, {}))


async def _put(house: House, caller: Caller, view: JobView, labels: dict[str, str]) -> None:
    labels.pop(TAGGED, None)
    if any(key.startswith(PREFIX) for key in labels):
        labels[TAGGED] = "yes"
    await house.jobs.amend(caller, view.job.id, labels=labels)


async def _query(house: House, request: Request, caller: Caller) -> Query:
    asked = await body.read(request, _Search)
    workspace = asked.workspace_id or DEFAULT_WORKSPACE
    await workspaces.enter(house, caller, workspace)
    parts: list[Query] = [Compare("scope", "=", workspaces.scope_of(workspace))]
    if asked.without_any_tag:
        parts.append(Label(TAGGED, "=", None))
    for tag in asked.tags or []:
        values = tuple(_value(value) for value in tag.values or ())
        key = PREFIX + _key(tag.key)
        parts.append(Label(key, "in", values) if values else Not(Label(key, "=", None)))
    for match in asked.matches or []:
        if match.key != "resource_name":
            raise Invalid(
                f"matches[].key must be resource_name, not {match.key!r}.", field="matches", code=INVALID
            )
        parts.append(Compare("name", "contains", body.text("matches[].value", match.value, 255)))
    return All(*parts)


def _part(request: Request) -> _Part:
    return _Part(
        body.number(request, "limit", 1000, 1, 1000), body.number(request, "offset", 0, 0, 2**31 - 1)
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
            f"tags[].key must be 1 to 128 letters, digits, inner spaces or _.:=+-@, and not begin with _sys_; "
            f"{key[:140]!r} is not.",
            field="tags",
            code=INVALID,
        )
    return key


def _value(value: str | None) -> str:
    value = value or ""
    if len(value) > 255 or not _VALUE.fullmatch(value):
        raise Invalid(
            f"tags[].value may have 255 letters, digits, spaces or _.:/=+-@; {value[:270]!r} is not so.",
            field="tags",
            code=INVALID,
        )
    return value
