"""The job that an address names, and the turn to change it."""

import asyncio
from weakref import WeakValueDictionary

from starlette.requests import Request

from turnout.dialects.modelarts import workspaces
from turnout.dialects.modelarts.errors import NO_SUCH_JOB
from turnout.dialects.modelarts.house import House
from turnout.dialects.modelarts.trials import SCOPE
from turnout.errors import NotFound
from turnout.job import from_uuid
from turnout.service import Caller, JobView

DIALECT = "modelarts"

_turns: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()


async def job(house: House, request: Request, caller: Caller) -> JobView:
    """Of `{training_job_id}`, in a workspace that is open to the caller. Raises NotFound with ModelArts' code."""
    return await by_uuid(house, caller, request.path_params["training_job_id"])


async def by_uuid(house: House, caller: Caller, text: str) -> JobView:
    job_id = from_uuid(text)
    if job_id is None:
        raise _missing(text)
    try:
        view = await house.jobs.by_id(caller, job_id)
    except NotFound:
        raise _missing(text) from None
    if view.job.dialect != DIALECT:
        raise _missing(text)
    await workspaces.enter(house, caller, await _workspace(house, caller, view, text))
    return view


def turn(view: JobView) -> asyncio.Lock:
    """Who changes a part of what is kept of a job reads the whole first: one after the other."""
    return _turns.setdefault(view.job.id, asyncio.Lock())


async def _workspace(house: House, caller: Caller, view: JobView, text: str) -> str:
    """A trial's job is in the workspace of its search."""
    kind, _, inside = view.job.scope.partition(":")
    if kind != SCOPE:
        return inside
    try:
        search = await house.jobs.by_id(caller, int(inside))
    except NotFound:
        raise _missing(text) from None
    return search.job.scope.partition(":")[2]


def _missing(text: str) -> NotFound:
    return NotFound(f"The training job {text!r} does not exist.", field="training_job_id", code=NO_SUCH_JOB)
