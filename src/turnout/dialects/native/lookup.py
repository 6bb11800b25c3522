"""Finds the job that an address names, and the replica that its query names."""

import re
from typing import NamedTuple

from starlette.requests import Request

from turnout.errors import Invalid, NotFound
from turnout.job import ReplicaName
from turnout.service import Caller, Jobs, JobView
from turnout.service.logs import LogPart


class FoundJob(NamedTuple):
    caller: Caller
    """The caller, acting in the project of the job."""
    view: JobView
    older: list[JobView]
    """Older jobs of the same name, the newest first."""


async def find_job(jobs: Jobs, request: Request, caller: Caller) -> FoundJob:
    """Finds a job by id, UUID or name; the newest one if several have the name. Raises NotFound.

    Without the parameter `project`, root finds jobs of all projects.
    """
    cluster = request.query_params.get("cluster", "")
    everywhere = caller.root and not request.query_params.get("project")
    try:
        view, *older = await jobs.by_reference(
            caller, request.path_params["job"], cluster, everywhere=everywhere
        )
    except NotFound as error:
        raise NotFound(
            f"{error.message}: use its name, its number or its UUID; `turnout jobs` lists them"
        ) from None
    return FoundJob(caller._replace(project=view.job.project), view, older)


def find_replica(view: JobView, request: Request) -> ReplicaName | None:
    """The replica of the parameter `replica`; None without it. Raises NotFound."""
    wanted = request.query_params.get("replica", "")
    if not wanted:
        return None
    names = [replica.name for replica in view.replicas]
    for name in names:
        if str(name) == wanted:
            return name
    shown = ", ".join(map(str, names[:10])) or "none yet"
    raise NotFound(f"replica: the job has no {wanted[:100]!r}; it has {shown}", field="replica")


def find_part(view: JobView, request: Request) -> LogPart:
    """The part of a log that the parameters `replica` and `attempt` choose. Raises NotFound or Invalid."""
    text = request.query_params.get("attempt", "")
    if not text:
        return LogPart(find_replica(view, request))
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise Invalid(f"attempt: must be a number from 1, not {text[:100]!r}", field="attempt")
    return LogPart(find_replica(view, request), int(text))
