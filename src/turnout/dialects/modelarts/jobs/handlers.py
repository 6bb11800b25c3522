"""Training jobs: create, list, show, change, stop, delete."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnout.dialects.modelarts import decode, fields, reply, translate, wire
from turnout.dialects.modelarts.account import quotas, workspaces
from turnout.dialects.modelarts.algorithms import lookup as algorithms
from turnout.dialects.modelarts.context import Context, Routes
from turnout.dialects.modelarts.errors import (
    BAD_ACTION,
    BAD_FILTERS,
    INVALID,
    NOT_STOPPABLE,
    OVER_QUOTA,
    STATE_CHANGED,
    UNSUPPORTED,
)
from turnout.dialects.modelarts.jobs import experiments, listing, lookup, render, run_options, sources
from turnout.dialects.modelarts.jobs.phases import phase
from turnout.dialects.modelarts.names import DEFAULT_AI_PROJECT, DEFAULT_WORKSPACE, scope_of
from turnout.dialects.modelarts.observe import tasks
from turnout.dialects.modelarts.program import code
from turnout.dialects.modelarts.search import config_file
from turnout.errors import AlreadyExists, Invalid, NotFound, Unavailable, Unsupported, WrongState
from turnout.job import Asset, Job, NewJob
from turnout.service import Caller, JobView

MAX_BATCH = 100
FIXED_ANNOTATIONS = ("fault-tolerance/", "job_template")
STOPPABLE = ("Pending", "Running")


class _Action(msgspec.Struct):
    action_type: str


class _Id(msgspec.Struct):
    id: str


class _BatchItem(msgspec.Struct):
    metadata: _Id
    kind: str | None = None


class _Batch(msgspec.Struct):
    jobs: list[_BatchItem]


async def create(context: Context, request: Request, caller: Caller) -> Response:
    job, stored = await submit(context, caller, await request.body())
    return reply.json(render.created(job, stored), 201)


async def submit(context: Context, caller: Caller, body: bytes) -> tuple[Job, dict[str, Any]]:
    """Returns the new job and its stored document."""
    document = decode.decode_job(body)
    workspace = document.metadata.workspace_id or DEFAULT_WORKSPACE
    await workspaces.check_access(context, caller, workspace)
    experiment, is_new = await _experiment(context, caller, workspace, document)
    algorithm = await _algorithm(context, caller, document)
    config = await _search_config(context, caller, document)
    translation = translate.TranslationContext(caller.project, context.settings, caller.key, context.images)
    new = translate.new_job(document, translation, algorithm, config=config)
    context.searches.check(new)
    stored: dict[str, Any] = msgspec.json.decode(new.document)
    new = await sources.check(context, caller, new, stored)
    await quotas.check(context, caller)
    await workspaces.check_quota(context, caller, workspace)
    if experiment and is_new:
        try:
            await context.assets.create(caller, experiment)
        except AlreadyExists:  # another request created it meanwhile: join that one
            return await submit(context, caller, body)
    try:
        job = await context.jobs.create(caller, new)
    except BaseException as error:
        if experiment and is_new:
            await context.assets.delete(caller, experiments.KIND, experiment.id)
        if isinstance(error, Unavailable):
            raise _too_few_gpus(context, new) from None
        raise
    return job, stored


async def list_all(context: Context, request: Request, caller: Caller) -> Response:
    document = await _list_request(request)
    query = listing.parse(document, context.clock())
    await workspaces.check_access(context, caller, query.workspace)
    total = await context.jobs.count(caller, query.query)
    views = await context.jobs.find(caller, query.query, query.page)
    items = [await _item(context, view, bool(document.host_ips)) for view in views]
    return reply.json(
        {
            "total": total,
            "count": len(items),
            "limit": query.limit,
            "offset": query.offset,
            "sort_by": listing.SORT_BY,
            "order": query.order,
            "group_by": document.group_by or "",
            "workspace_id": query.workspace,
            "ai_project": DEFAULT_AI_PROJECT,
            "train_type": document.train_type or "",
            "items": items,
        }
    )


async def show(context: Context, request: Request, caller: Caller) -> Response:
    return reply.json(await _render(context, await lookup.job(context, request, caller)))


async def change(context: Context, request: Request, caller: Caller) -> Response:
    body = decode.decode_update(await request.body())
    view = await lookup.job(context, request, caller)
    async with lookup.lock(view):
        view = await lookup.job(context, request, caller)
        stored, priority = _apply_update(view, body)
        document = decode.check_stored_size(msgspec.json.encode(stored), "metadata.annotation")
        try:
            await context.jobs.amend(caller, view.job.id, document=document, priority=priority)
        except WrongState as error:
            raise WrongState(f"spec.schedule_policy.priority: {error.message}.", code=STATE_CHANGED) from None
    return reply.json(None)


async def delete(context: Context, request: Request, caller: Caller) -> Response:
    view = await lookup.job(context, request, caller)
    await context.jobs.delete(caller, view.job.id)
    return reply.json("", 202)


async def delete_several(context: Context, request: Request, caller: Caller) -> Response:
    """Finds all jobs before it deletes the first one: if one is missing, none is deleted."""
    items = (await fields.read(request, _Batch)).jobs
    if not 1 <= len(items) <= MAX_BATCH:
        raise Invalid(f"jobs must have 1 to {MAX_BATCH} items, not {len(items)}.", field="jobs", code=INVALID)
    views = {item.metadata.id: await lookup.by_uuid(context, caller, item.metadata.id) for item in items}
    if len({view.job.scope for view in views.values()}) > 1:
        raise Invalid("jobs must all be in one workspace.", field="jobs", code=INVALID)
    for view in views.values():
        await context.jobs.delete(caller, view.job.id)
    return reply.json(None)


async def run_action(context: Context, request: Request, caller: Caller) -> Response:
    action = (await fields.read(request, _Action)).action_type
    view = await lookup.job(context, request, caller)
    if action != "terminate":
        raise Invalid(f"action_type must be terminate, not {action!r}.", field="action_type", code=BAD_ACTION)
    if phase(view.job).phase not in STOPPABLE:
        raise _not_stoppable(view.job)
    try:
        await context.jobs.stop(caller, view.job.id)
    except WrongState:
        raise _not_stoppable(view.job) from None
    view = await context.jobs.by_id(caller, view.job.id)
    return reply.json(await _render(context, view), 202)


async def check_name(context: Context, request: Request, caller: Caller) -> Response:
    workspace = fields.query_text(request.query_params, "workspace_id", DEFAULT_WORKSPACE)
    name = fields.query_text(request.query_params, "job_name")
    await workspaces.check_access(context, caller, workspace)
    try:
        await context.jobs.by_handle(caller, scope_of(workspace), name)
    except NotFound:
        return reply.json({"is_duplicate": False})
    return reply.json({"is_duplicate": True})


ROUTES: Routes = [
    ("POST", "/training-jobs", create),
    ("POST", "/training-jobs/batch-delete", delete_several),
    ("POST", "/training-job-searches", list_all),
    ("GET", "/training-jobs/{training_job_id}", show),
    ("PUT", "/training-jobs/{training_job_id}", change),
    ("DELETE", "/training-jobs/{training_job_id}", delete),
    ("POST", "/training-jobs/{training_job_id}/actions", run_action),
    ("GET", "/training-job-names", check_name),
]


async def _algorithm(context: Context, caller: Caller, document: wire.Job) -> Asset | None:
    algorithm_id = document.algorithm.id if document.algorithm else None
    return await algorithms.by_id(context, caller, algorithm_id) if algorithm_id else None


async def _search_config(context: Context, caller: Caller, document: wire.Job) -> bytes | None:
    """The content of `autosearch_config_path`, if the job has one and the file exists."""
    path = document.algorithm.autosearch_config_path if document.algorithm and not document.tasks else None
    return (
        await code.read(context, caller, path, translate.CONFIG_PATH, config_file.MAX_BYTES) if path else None
    )


async def _experiment(
    context: Context, caller: Caller, workspace: str, document: wire.Job
) -> tuple[Asset | None, bool]:
    """Finds the job's experiment and puts it into the document. Returns whether it must be created first."""
    reference = document.metadata.training_experiment_reference
    if reference is None or not (reference.id or reference.name):
        return None, False
    if reference.id:
        found, is_new = await experiments.by_id(context, caller, reference.id), False
    else:
        found, is_new = await experiments.by_name(context, caller, workspace, reference)
    document.metadata.training_experiment_reference = wire.Experiment(
        found.id, found.name, reference.description
    )
    return found, is_new


def _apply_update(view: JobView, body: wire.Update) -> tuple[dict[str, Any], int | None]:
    """Returns the new stored document, and the new priority if there is one."""
    stored: dict[str, Any] = msgspec.json.decode(view.document)
    if body.description is not None:
        stored["metadata"]["description"] = fields.text("description", body.description, 256)
    priority = _apply_spec_update(stored, body.spec) if body.spec else None
    if body.endpoints is not None:
        stored["endpoints"] = msgspec.to_builtins(body.endpoints)
    for key, value in ((body.metadata and body.metadata.annotation) or {}).items():
        annotations = stored["metadata"].setdefault("annotations", {})
        if key.startswith(FIXED_ANNOTATIONS) and annotations.get(key) != value:
            raise _unchangeable(f"metadata.annotation.{key}")
        annotations[key] = value
    return stored, priority


def _apply_spec_update(stored: dict[str, Any], body: wire.UpdateSpec) -> int | None:
    """Changes the stored document. Returns the new priority if there is one."""
    spec = stored.setdefault("spec", {})
    if body.notification is not None:
        run_options.check_notification(body.notification, "spec.notification")
        spec["notification"] = msgspec.to_builtins(body.notification)
    policy = body.schedule_policy
    if policy is None:
        return None
    old = spec.get("schedule_policy", {})
    if policy.preemptible is not None and policy.preemptible != old.get("preemptible", False):
        raise _unchangeable("spec.schedule_policy.preemptible")
    run_options.check_priority(policy.priority, "spec.schedule_policy.priority")
    spec["schedule_policy"] = old | msgspec.to_builtins(policy)
    return policy.priority


async def _list_request(request: Request) -> listing.ListRequest:
    """The body. The page size may be in the query, as in the reference's example."""
    try:
        document = (
            await fields.read(request, listing.ListRequest) if await request.body() else listing.ListRequest()
        )
    except Invalid as error:
        if error.field.startswith("filters"):
            raise Invalid(error.message, field=error.field, code=BAD_FILTERS) from None
        raise
    if document.limit is None and "limit" in request.query_params:
        limit = fields.number(request.query_params, "limit", listing.MAX_LIMIT, 1, listing.MAX_LIMIT)
        return msgspec.structs.replace(document, limit=limit)
    return document


async def _item(context: Context, view: JobView, with_hosts: bool) -> dict[str, Any]:
    item = await _render(context, view)
    if with_hosts:
        pooled = bool(item.get("spec", {}).get("resource", {}).get("pool_id"))
        item["status"]["task_ips"] = tasks.render([view.replicas], tasks.HOST_IP if pooled else "")
    return item


async def _render(context: Context, view: JobView) -> dict[str, Any]:
    return render.job(
        view, await lookup.past(context, view), context.clock(), await lookup.trials(context, view)
    )


def _too_few_gpus(context: Context, new: NewJob) -> Unavailable:
    """The error in ModelArts' words: it names the pool."""
    needed = sum(role.resources.gpus * role.replicas for role in new.spec.roles)
    available = context.jobs.total(new.cluster).gpus
    pool = f"the pool {new.labels['pool_id']}" if "pool_id" in new.labels else "the public pool"
    has = (
        f"{available} in all, on nodes that have too few each" if available >= needed else available or "none"
    )
    return Unavailable(
        f"The job needs {needed} GPUs, and {pool} has {has}.",
        field="spec.resource.flavor_id",
        code=OVER_QUOTA,
    )


def _unchangeable(field: str) -> Unsupported:
    return Unsupported(f"{field} cannot be changed after the job is created.", field=field, code=UNSUPPORTED)


def _not_stoppable(job: Job) -> WrongState:
    return WrongState(
        f"The training job is {phase(job).phase} and cannot be stopped.",
        field="training_job_id",
        code=NOT_STOPPABLE,
    )
