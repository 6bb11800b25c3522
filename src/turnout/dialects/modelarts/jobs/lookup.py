"""Finds the job or the task that an address names, and what belongs to it."""

import asyncio
from weakref import WeakValueDictionary

import msgspec
from starlette.requests import Request

from turnout.dialects.modelarts.account import workspaces
from turnout.dialects.modelarts.context import Context
from turnout.dialects.modelarts.errors import INVALID, NO_SUCH_JOB
from turnout.dialects.modelarts.names import DIALECT, TRIAL_SCOPE
from turnout.dialects.modelarts.observe import tasks
from turnout.dialects.modelarts.search import definition
from turnout.errors import Invalid, NotFound
from turnout.job import PastAttempt, ReplicaName, Trial, from_uuid
from turnout.service import Caller, JobView

_locks: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()


async def job(context: Context, request: Request, caller: Caller) -> JobView:
    """The job `{training_job_id}`. Raises NotFound with ModelArts' code, and Denied if its workspace is closed."""
    return await by_uuid(context, caller, request.path_params["training_job_id"])


async def by_uuid(context: Context, caller: Caller, text: str) -> JobView:
    job_id = from_uuid(text)
    if job_id is None:
        raise _missing(text)
    try:
        view = await context.jobs.by_id(caller, job_id)
    except NotFound:
        raise _missing(text) from None
    if view.job.dialect != DIALECT:
        raise _missing(text)
    await workspaces.check_access(context, caller, await _workspace(context, caller, view, text))
    return view


async def task(context: Context, request: Request, caller: Caller) -> tuple[JobView, ReplicaName]:
    """The task `{task_id}` of the job `{training_job_id}`. Raises Invalid that lists the job's tasks."""
    view = await job(context, request, caller)
    return await task_of(context, caller, view, request.path_params["task_id"])


async def task_of(
    context: Context, caller: Caller, view: JobView, task_id: str
) -> tuple[JobView, ReplicaName]:
    """A task of a search belongs to the job of a trial: `ae544174-worker-0`, or `ae544174` for the first task."""
    spec = await context.jobs.spec(view)
    if spec.search is None:
        return view, tasks.replica_name(spec, task_id)
    trial_id, _, name = task_id.partition("-")
    try:
        trial = await context.searches.trial(view, trial_id)
        view = await context.jobs.by_id(caller, trial.child)
    except NotFound:
        raise Invalid(
            f"task_id {task_id!r} is not a task of this job; the tasks of a search are <trial_id>-worker-0.",
            field="task_id",
            code=INVALID,
        ) from None
    return view, tasks.replica_name(spec, name or f"{spec.lead.name}-0")


async def past(context: Context, view: JobView) -> list[PastAttempt]:
    """The attempts before the current one."""
    return await context.jobs.past(view) if view.job.attempt else []


async def trials(context: Context, view: JobView) -> list[Trial]:
    """The trials of a search; an empty list for any other job. Decodes only documents that may be searches."""
    document = view.document
    if not any(mark in document for mark in definition.MARKS):
        return []
    return await context.searches.trials(view) if definition.is_search(msgspec.json.decode(document)) else []


def lock(view: JobView) -> asyncio.Lock:
    """Hold it from the read to the write when you change a part of a job's document or labels."""
    return _locks.setdefault(view.job.id, asyncio.Lock())


async def _workspace(context: Context, caller: Caller, view: JobView, text: str) -> str:
    """The job of a trial is in the workspace of its search."""
    kind, _, name = view.job.scope.partition(":")
    if kind != TRIAL_SCOPE:
        return name
    try:
        search = await context.jobs.by_id(caller, int(name))
    except NotFound:
        raise _missing(text) from None
    return search.job.scope.partition(":")[2]


def _missing(text: str) -> NotFound:
    return NotFound(f"The training job {text!r} does not exist.", field="training_job_id", code=NO_SUCH_JOB)
