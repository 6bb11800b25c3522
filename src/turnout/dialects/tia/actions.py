"""What each action does, from its request to its answer."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

import msgspec

from turnout.config import Settings
from turnout.dialects.tia import answer, translate, wire
from turnout.errors import Invalid, NotFound, TimedOut
from turnout.job import NewJob
from turnout.service import Caller, Jobs, JobView, Logs

ALIASES = {"ListJob": "ListJobs", "QueryLog": "QueryLogs", "ListModel": "ListModels"}
"""The singular names that the first pages of the documentation had."""

ANSWER_SECONDS = 10
"""For reading; control has a limit of its own for what changes a job."""

Found = TypeVar("Found")
Handler = Callable[[Caller, Any, str], Awaitable[wire.Answer]]


class Check(Protocol):
    def __call__(self, source: str, read_only: bool = False) -> str: ...


class Actions:
    """Each method takes who asks, the request and the RequestId."""

    def __init__(self, jobs: Jobs, logs: Logs, settings: Settings, check: Check, started: float) -> None:
        self._jobs = jobs
        self._logs = logs
        self._runtimes = settings.runtimes
        self._check = check
        self._started = started
        self._clusters = jobs.clusters()

    def handlers(self) -> dict[str, tuple[type[msgspec.Struct], Handler]]:
        return {
            "CreateJob": (wire.CreateJob, self.create_job),
            "DescribeJob": (wire.DescribeJob, self.describe_job),
            "ListJobs": (wire.ListJobs, self.list_jobs),
            "DeleteJob": (wire.DeleteJob, self.delete_job),
            "QueryLogs": (wire.QueryLogs, self.query_logs),
        }

    async def create_job(self, caller: Caller, request: wire.CreateJob, request_id: str) -> wire.JobAnswer:
        new = translate.new_job(request, caller.project, self._runtimes)
        self._check_cluster(request.cluster)
        if new.spec.mounts:
            new = msgspec.structs.replace(new, notes=(*new.notes, *self._check_mounts(new)))
        job = await self._jobs.create(caller, new)
        uptime = time.monotonic() - self._started
        return wire.JobAnswer(request_id, answer.created(job, new.document, uptime))

    def _check_mounts(self, new: NewJob) -> list[str]:
        """What the user should know about them."""
        try:
            notes = [self._check(mount.source, mount.read_only) for mount in new.spec.mounts]
        except Invalid as error:
            raise Invalid(f"PackageDir: {error.message}", field="PackageDir") from None
        return [note for note in notes if note]

    async def describe_job(
        self, caller: Caller, request: wire.DescribeJob, request_id: str
    ) -> wire.JobAnswer:
        view = await self._find(caller, request.cluster, request.name)
        return wire.JobAnswer(request_id, answer.described(view))

    async def list_jobs(self, caller: Caller, request: wire.ListJobs, request_id: str) -> wire.JobsAnswer:
        self._check_cluster(request.cluster)
        views = await _in_time(self._jobs.find(caller, *translate.list_query(request)))
        return wire.JobsAnswer(request_id, [answer.described(view) for view in views])

    async def delete_job(self, caller: Caller, request: wire.DeleteJob, request_id: str) -> wire.Answer:
        view = await self._find(caller, request.cluster, request.name)
        await self._jobs.delete(caller, view.job.id)
        return wire.Answer(request_id)

    async def query_logs(self, caller: Caller, request: wire.QueryLogs, request_id: str) -> wire.LogsAnswer:
        wanted = translate.log_range(request)
        view = await self._find(caller, request.cluster, request.job_name)
        reading = self._logs.query(
            view, start=wanted.start, end=wanted.end, limit=wanted.limit, cursor=wanted.cursor
        )
        try:
            page = await _in_time(reading)
        except Invalid as error:
            raise Invalid(f"Context: {error.message}.", field="Context") from None
        context = translate.context(wanted.given + len(page.lines), page.cursor)
        return wire.LogsAnswer(request_id, context, answer.logs(view, page.lines), page.over)

    async def _find(self, caller: Caller, cluster: str, name: str) -> JobView:
        self._check_cluster(cluster)
        return await _in_time(self._jobs.by_handle(caller, translate.scope(cluster), name))

    def _check_cluster(self, cluster: str) -> None:
        if cluster not in self._clusters:
            known = ", ".join(sorted(self._clusters))
            raise NotFound(f"There is no cluster {cluster!r}; there are {known}.", field="Cluster")


async def _in_time(reading: Awaitable[Found]) -> Found:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            return await reading
    except TimeoutError:
        raise TimedOut(
            f"There was no answer from the store or the engine within {ANSWER_SECONDS} s."
        ) from None
