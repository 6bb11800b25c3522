"""The calls that look at jobs: the list, tasks, stages, events, logs, metrics."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from turnout.access.links import check_link, make_link
from turnout.dialects.modelarts import (
    answer,
    auto_search,
    errors,
    events,
    find,
    logs,
    metrics,
    reply,
    search,
    stages,
    tasks,
    workspaces,
)
from turnout.dialects.modelarts.body import number, read
from turnout.dialects.modelarts.history import History
from turnout.dialects.modelarts.house import House, Routes
from turnout.dialects.modelarts.messages import language
from turnout.errors import Invalid, NotFound, TurnoutError
from turnout.job import Past, Replica, ReplicaName, Trial, to_uuid
from turnout.service import Caller, JobView

_AI_PROJECT = "default-ai-project"


async def list_jobs(house: House, request: Request, caller: Caller) -> Response:
    document = await _searches(request)
    asked = search.wanted(document, house.clock())
    await workspaces.enter(house, caller, asked.workspace)
    total = await house.jobs.count(caller, asked.query)
    views = await house.jobs.find(caller, asked.query, asked.page)
    items = [await _item(house, view, bool(document.host_ips)) for view in views]
    return reply.json(
        {
            "total": total,
            "count": len(items),
            "limit": asked.limit,
            "offset": asked.offset,
            "sort_by": search.SORT_BY,
            "order": asked.order,
            "group_by": document.group_by or "",
            "workspace_id": asked.workspace,
            "ai_project": _AI_PROJECT,
            "train_type": document.train_type or "",
            "items": items,
        }
    )


async def list_tasks(house: House, request: Request, caller: Caller) -> Response:
    """Of one attempt, or of all. The answer is an array."""
    view = await find.job(house, request, caller)
    asked = number(request, "schedule_count", 0, 0, 1 << 30)
    attempts = await _attempts(house, view)
    chosen = [replicas for replicas in attempts if replicas and asked in (0, replicas[0].attempt)]
    return reply.json(tasks.render(chosen))


async def list_stages(house: House, request: Request, caller: Caller) -> Response:
    view = await find.job(house, request, caller)
    return reply.json(stages.render(await _history(house, view)))


async def list_events(house: House, request: Request, caller: Caller) -> Response:
    asked = events.wanted(request.query_params)
    view = await find.job(house, request, caller)
    spoken = language(request.headers.get("x-language", ""))
    return reply.json(events.render(await _history(house, view), asked, spoken, house.clock()))


async def list_event_categories(house: House, request: Request, caller: Caller) -> Response:
    kind = request.query_params.get("flavor_type", "")
    if kind not in ("", "CPU", "GPU", "Ascend"):
        raise Invalid(
            f"flavor_type must be CPU, GPU or Ascend, not {kind!r}.", field="flavor_type", code=logs.BAD_QUERY
        )
    return reply.json(events.categories(language(request.headers.get("x-language", ""))))


async def preview_log(house: House, request: Request, caller: Caller) -> Response:
    view, replica = await _task(house, request, caller)
    if not _ready(house, view, replica):
        return reply.nothing()
    tail, size = await house.logs.tail(view, replica, logs.MOST_PREVIEW)
    return reply.json(logs.preview(tail, size))


async def link_to_log(house: House, request: Request, caller: Caller) -> Response:
    kind = logs.kind_of_link(request.query_params, request.headers)
    view, replica = await _task(house, request, caller)
    if not _ready(house, view, replica):
        return reply.nothing()
    about = logs.about(view.job.project, to_uuid(view.job.id), str(replica), kind)
    link = make_link(house.keys.root, about, house.clock() / 1e9)
    return reply.json({"obs_url": logs.url(str(request.base_url), view.job, replica, kind, link)})


async def open_link(house: House, request: Request) -> Response:
    """What a link leads to: all of a log, for whoever has the link."""
    project, job_id, task_id = (
        request.path_params[name] for name in ("project_id", "training_job_id", "task_id")
    )
    query = request.query_params
    kind = "download" if query.get("type") == "download" else "view"
    about = logs.about(project, job_id, task_id, kind)
    expires, signature = query.get("expires", ""), query.get("signature", "")
    check_link(house.keys.root, about, expires, signature, house.clock() / 1e9)
    caller = Caller("link", project, root=True)
    view, replica = await _member(house, caller, await find.by_uuid(house, caller, job_id), task_id)
    return StreamingResponse(
        house.logs.whole(view, replica),
        headers=logs.headers(job_id, task_id, kind),
        media_type=logs.MEDIA_TYPES[kind],
    )


async def read_lines(house: House, request: Request, caller: Caller) -> Response:
    asked = logs.lines_wanted(request.query_params)
    view, replica = await _task(house, request, caller)
    if not _ready(house, view, replica):
        return reply.nothing()
    first = logs.first_line(asked)
    found = await house.logs.numbered(view, replica, first, asked.count, asked.descending)
    return reply.json(logs.lines(found, asked.descending))


async def show_metrics(house: House, request: Request, caller: Caller) -> Response:
    view, replica = await _task(house, request, caller)
    if view.job.started is None:
        return reply.nothing()
    member = next((one for one in view.replicas if one.name == replica), None)
    until = (member.ended if member else None) or view.job.ended or house.clock()
    samples = await house.jobs.samples(view, replica)
    return reply.json(metrics.render(samples, view.job.started, until))


_JOB = "/training-jobs/{training_job_id}"
ROUTES: Routes = [
    ("POST", "/training-job-searches", list_jobs),
    ("GET", "/training-event-categories", list_event_categories),
    ("GET", f"{_JOB}/tasks", list_tasks),
    ("GET", f"{_JOB}/stages", list_stages),
    ("GET", f"{_JOB}/events", list_events),
    ("GET", f"{_JOB}/tasks/{{task_id}}/logs/preview", preview_log),
    ("GET", f"{_JOB}/tasks/{{task_id}}/logs/url", link_to_log),
    ("GET", f"{_JOB}/logs/{{task_id}}", read_lines),
    ("GET", f"{_JOB}/metrics/{{task_id}}", show_metrics),
]


async def trials_of(house: House, view: JobView) -> list[Trial]:
    """Of a search. Most jobs are none, which is seen without reading what is kept of them."""
    document = view.document
    if not any(mark in document for mark in auto_search.MARKS):
        return []
    return await house.searches.trials(view) if auto_search.is_search(msgspec.json.decode(document)) else []


def link_route(house: House) -> Route:
    """Outside of the API: nothing but the link's signature says who asks."""

    async def endpoint(request: Request) -> Response:
        try:
            return await open_link(house, request)
        except TurnoutError as error:
            return errors.answer(error)

    path = logs.LINK_PATH + "/{project_id}/{training_job_id}/{task_id}"
    return Route(path, endpoint, methods=["GET"])


async def _searches(request: Request) -> search.Searches:
    """The body; a page's size may stand in the address too, as in the example of the reference."""
    try:
        document = await read(request, search.Searches) if await request.body() else search.Searches()
    except Invalid as error:
        if error.field.startswith("filters"):
            raise Invalid(error.message, field=error.field, code=search.BAD_FILTERS) from None
        raise
    if document.limit is None and "limit" in request.query_params:
        return msgspec.structs.replace(
            document, limit=number(request, "limit", search.LARGEST_LIMIT, 1, search.LARGEST_LIMIT)
        )
    return document


async def _item(house: House, view: JobView, with_hosts: bool) -> dict[str, Any]:
    item = answer.job(view, await _past(house, view), house.clock(), await trials_of(house, view))
    if with_hosts:
        pooled = bool(item.get("spec", {}).get("resource", {}).get("pool_id"))
        item["status"]["task_ips"] = tasks.render([view.replicas], tasks.HOST_IP if pooled else "")
    return item


async def _history(house: House, view: JobView) -> History:
    return History(
        view, await house.jobs.events(view), await _past(house, view), await _attempts(house, view)
    )


async def _past(house: House, view: JobView) -> list[Past]:
    """Only a job that was placed can have failed and started over."""
    return await house.jobs.past(view) if view.job.attempt else []


async def _attempts(house: House, view: JobView) -> list[tuple[Replica, ...]]:
    earlier = [await house.jobs.replicas(view, attempt) for attempt in range(1, view.job.attempt)]
    return [*earlier, view.replicas] if view.job.attempt else []


async def _task(house: House, request: Request, caller: Caller) -> tuple[JobView, ReplicaName]:
    view = await find.job(house, request, caller)
    return await _member(house, caller, view, request.path_params["task_id"])


async def _member(house: House, caller: Caller, view: JobView, task_id: str) -> tuple[JobView, ReplicaName]:
    """A task of a search is one of a trial's job: `ae544174-worker-0`, or `ae544174` for the first."""
    spec = await house.jobs.spec(view)
    if spec.search is None:
        return view, tasks.find(spec, task_id)
    trial_id, _, name = task_id.partition("-")
    try:
        trial = await house.searches.trial(view, trial_id)
        view = await house.jobs.by_id(caller, trial.child)
    except NotFound:
        raise Invalid(
            f"task_id {task_id!r} is not a task of this job; those of a search are <trial_id>-worker-0.",
            field="task_id",
            code=errors.INVALID,
        ) from None
    return view, tasks.find(spec, name or f"{spec.lead.name}-0")


def _ready(house: House, view: JobView, replica: ReplicaName) -> bool:
    return logs.ready(view, replica, house.clock(), house.settings.limits.log_days)
