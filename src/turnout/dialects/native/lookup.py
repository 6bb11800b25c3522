"""Finds the job that an address names."""

from typing import NamedTuple

from starlette.requests import Request

from turnout.errors import NotFound
from turnout.service import Caller, Jobs, JobView


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
            f"{error.message}: use its name, its number or its UUID; `tictl job list` shows TI-A's"
        ) from None
    return FoundJob(caller._replace(project=view.job.project), view, older)
