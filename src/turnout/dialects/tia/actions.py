"""The actions: from the request to the response."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from turnout.dialects import Context
from turnout.dialects.tia import render, translate, wire
from turnout.errors import Denied, Invalid, NotFound, TimedOut
from turnout.job import Job, NewJob
from turnout.service import Caller, JobView

ALIASES = {"ListJob": "ListJobs", "QueryLog": "QueryLogs", "ListModel": "ListModels"}
"""The singular names of the first documentation pages."""

READ_SECONDS = 10
"""The limit for reads; `control` has its own limit for changes."""

T = TypeVar("T")
Handler = Callable[[Caller, Any, str], Awaitable[wire.Response]]


class Actions:
    """Each method takes the caller, the request and the RequestId."""

    def __init__(self, context: Context) -> None:
        self._jobs = context.jobs
        self._logs = context.logs
        self._runtimes = context.settings.runtimes
        self._images = context.images
        self._sources = context.sources
        self._started = time.monotonic()

    def handlers(self) -> dict[str, tuple[type[msgspec.Struct], Handler]]:
        return {
            "CreateJob": (wire.CreateJob, self.create_job),
            "DescribeJob": (wire.DescribeJob, self.describe_job),
            "ListJobs": (wire.ListJobs, self.list_jobs),
            "DeleteJob": (wire.DeleteJob, self.delete_job),
            "QueryLogs": (wire.QueryLogs, self.query_logs),
        }

    async def create_job(self, caller: Caller, request: wire.CreateJob, request_id: str) -> wire.JobResponse:
        job = await self.submit(caller, request)
        uptime = time.monotonic() - self._started
        return wire.JobResponse(request_id, render.created_job(job, request, uptime))

    async def submit(self, caller: Caller, request: wire.CreateJob) -> Job:
        new = translate.new_job(request, caller.project, self._runtimes, self._images)
        self._jobs.check_cluster(request.cluster, "Cluster")
        if new.spec.mounts:
            new = msgspec.structs.replace(new, notes=(*new.notes, *await self._check_mounts(caller, new)))
        return await self._jobs.create(caller, new)

    async def _check_mounts(self, caller: Caller, new: NewJob) -> list[str]:
        """Returns notes for the user. Raises Denied for another project's bucket, and Invalid."""
        try:
            return await self._sources.check(
                caller.project, [("PackageDir", mount) for mount in new.spec.mounts]
            )
        except NotFound as error:
            hint = "upload the code first; the first entry is the directory that the job runs in"
            raise Invalid(f"PackageDir: {error.message}; {hint}.", field="PackageDir") from None
        except Invalid as error:
            raise Invalid(f"PackageDir: {error.message}", field="PackageDir") from None
        except Denied as error:
            raise Denied(f"PackageDir: {error.message}.", field="PackageDir") from None

    async def describe_job(
        self, caller: Caller, request: wire.DescribeJob, request_id: str
    ) -> wire.JobResponse:
        view = await self._find(caller, request.cluster, request.name)
        return wire.JobResponse(request_id, render.described_job(view))

    async def list_jobs(self, caller: Caller, request: wire.ListJobs, request_id: str) -> wire.JobsResponse:
        self._jobs.check_cluster(request.cluster, "Cluster")
        views = await _with_timeout(self._jobs.find(caller, *translate.list_query(request)))
        return wire.JobsResponse(request_id, [render.described_job(view) for view in views])

    async def delete_job(self, caller: Caller, request: wire.DeleteJob, request_id: str) -> wire.Response:
        view = await self._find(caller, request.cluster, request.name)
        await self._jobs.delete(caller, view.job.id)
        return wire.Response(request_id)

    async def query_logs(self, caller: Caller, request: wire.QueryLogs, request_id: str) -> wire.LogsResponse:
        log_range = translate.log_range(request)
        view = await self._find(caller, request.cluster, request.job_name)
        query = self._logs.query(
            view, start=log_range.start, end=log_range.end, limit=log_range.limit, cursor=log_range.cursor
        )
        try:
            page = await _with_timeout(query)
        except Invalid as error:
            raise Invalid(f"Context: {error.message}.", field="Context") from None
        context = translate.context(log_range.lines_before + len(page.lines), page.cursor)
        return wire.LogsResponse(request_id, context, render.logs(view, page.lines), page.over)

    async def _find(self, caller: Caller, cluster: str, name: str) -> JobView:
        self._jobs.check_cluster(cluster, "Cluster")
        return await _with_timeout(self._jobs.by_handle(caller, translate.scope(cluster), name))


async def _with_timeout(query: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(READ_SECONDS):
            return await query
    except TimeoutError:
        raise TimedOut(f"The store or the engine did not answer within {READ_SECONDS} s.") from None
