"""Trials as jobs: makes, watches, reads and ends them for whoever conducts a search."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager

import msgspec

from turnout.control import Control
from turnout.control.turn import Conclude, Finish, StopTrial
from turnout.errors import Invalid, NotFound
from turnout.job import Job, Measurement, NewJob, Reason, State, Trial
from turnout.service.jobs import Caller, Jobs, JobView, lead_of
from turnout.service.logs import Logs

Make = Callable[[JobView, Trial], NewJob]
"""A dialect's: the job that tries a point of this search."""

_LINES = 2000
_LARGEST_FILE = 1 << 20


class TrialJobs:
    def __init__(self, jobs: Jobs, logs: Logs, control: Control, make: Mapping[str, Make]) -> None:
        self._jobs = jobs
        self._logs = logs
        self._control = control
        self._make = make

    def searching(self) -> list[int]:
        return self._control.searching()

    def watch(self, job_id: int) -> AbstractContextManager[asyncio.Event]:
        return self._control.hub.watch(job_id)

    async def create(self, search: Job, trial: Trial) -> Job:
        make = self._make.get(search.dialect)
        if make is None:
            raise Invalid(f"jobs of {search.dialect} cannot be searched")
        caller = _caller(search)
        new = make(await self._jobs.view(search), trial)
        # What its documents say is what was asked for, not what a trial can be asked to do again.
        new = msgspec.structs.replace(new, spec=msgspec.structs.replace(new.spec, search=None))
        return await self._jobs.create(caller, new, trial)

    async def lines(self, job: Job, cursor: str) -> tuple[list[tuple[int, str]], str, bool]:
        page = await self._logs.query(await self._jobs.view(job), limit=_LINES, cursor=cursor)
        return [(line.at, line.text) for line in page.lines], page.cursor, page.over

    def grown(self, job: Job) -> AsyncIterator[None]:
        return self._control.follow(job)

    async def written(self, job: Job, path: str) -> bytes | None:
        try:
            spec = await self._jobs.spec(JobView(job, (), b""))
        except NotFound:
            return None
        if not any(path.startswith(f"{place}/") for place in spec.scratch):
            return None
        if job.live:
            return await asyncio.to_thread(self._control.written, job, lead_of(spec), path, _LARGEST_FILE)
        # It is the last look, and what was just written is in memory.
        return self._control.written(job, lead_of(spec), path, _LARGEST_FILE)

    async def stop_trial(self, trial: Trial, why: str) -> None:
        await self._control.search(StopTrial(trial.job, trial.number, why))

    async def conclude(
        self, trial: Trial, attempt: int, measurements: Sequence[Measurement], best: str
    ) -> None:
        await self._control.search(
            Conclude(
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
        await self._control.search(Finish(job_id, state, reason, message))


def _caller(job: Job) -> Caller:
    return Caller("turnout", job.project)
