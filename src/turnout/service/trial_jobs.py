"""Creates, watches, reads and stops the jobs of trials; implements `search.TrialRunner`."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager

import msgspec

from turnout import pools
from turnout.control import Controller
from turnout.control.turn import FinishSearch, FinishTrial, StopTrial
from turnout.errors import Invalid, NotFound
from turnout.job import Job, LiveSearch, Measurement, NewJob, Reason, State, Trial
from turnout.service.jobs import Caller, Jobs, JobView, lead_of
from turnout.service.logs import Logs

MakeTrialJob = Callable[[JobView, Trial], NewJob]
"""The function of a dialect that makes the job of a trial."""

_LINES = 300
"""Lines of a page. Few enough not to block the event loop, even if each line is a measurement."""
_LARGEST_FILE = 1 << 20


class TrialJobs:
    def __init__(self, jobs: Jobs, logs: Logs, control: Controller, make: Mapping[str, MakeTrialJob]) -> None:
        self._jobs = jobs
        self._logs = logs
        self._control = control
        self._make = make

    def live_searches(self) -> list[int]:
        return self._control.live_searches()

    def live_search(self, job_id: int) -> LiveSearch | None:
        return self._control.live_search(job_id)

    def watch(self, job_id: int) -> AbstractContextManager[asyncio.Event]:
        return self._control.changes.watch(job_id)

    async def create(self, search: Job, trial: Trial) -> Job:
        make = self._make.get(search.dialect)
        if make is None:
            raise Invalid(f"jobs of {search.dialect} cannot be part of a search")
        caller = _caller(search)
        new = make(await self._jobs.view(search), trial)
        # The document of the search describes the search; its trials must not start another one.
        new = msgspec.structs.replace(new, spec=msgspec.structs.replace(new.spec, search=None))
        return await self._jobs.create(caller, new, trial)

    async def lines(self, job: Job, cursor: str) -> tuple[list[tuple[int, str]], str, bool]:
        page = await self._logs.query(await self._jobs.view(job), limit=_LINES, cursor=cursor)
        return [(line.at, line.text) for line in page.lines], page.cursor, page.over

    def log_growth(self, job: Job) -> AsyncIterator[None]:
        return self._jobs.follow(job)

    async def read_file(self, job: Job, path: str) -> bytes | None:
        try:
            spec = await self._jobs.spec(JobView(job, (), b""))
        except NotFound:
            return None
        if not any(path.startswith(f"{directory}/") for directory in spec.scratch):
            return None
        if job.live:
            return await pools.disk.run(
                job.project, self._jobs.written, job, lead_of(spec), path, _LARGEST_FILE
            )
        # This is the last read, and the file was just written, so it is still in memory.
        return self._jobs.written(job, lead_of(spec), path, _LARGEST_FILE)

    async def stop_trial(self, trial: Trial, why: str) -> None:
        await self._control.search(StopTrial(trial.job, trial.number, why))

    async def conclude(
        self, trial: Trial, attempt: int, measurements: Sequence[Measurement], best: str
    ) -> None:
        await self._control.search(
            FinishTrial(
                job_id=trial.job,
                number=trial.number,
                state=trial.state,
                attempt=attempt,
                ended=trial.ended or trial.created,
                value=trial.value,
                metrics=trial.metrics,
                message=trial.message,
                measurements=tuple(measurements),
                best=best,
            )
        )

    async def finish(self, job_id: int, state: State, reason: Reason, message: str) -> None:
        await self._control.search(FinishSearch(job_id, state, reason, message))


def _caller(job: Job) -> Caller:
    return Caller(job.owner, job.project)
