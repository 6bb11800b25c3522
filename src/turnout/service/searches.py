"""The trials of a search: look at them, end one, ask what mattered."""

from typing import Protocol

from turnout.control import Control
from turnout.control.turn import StopTrial
from turnout.errors import NotFound, Unsupported, WrongState
from turnout.job import Measurement, NewJob, Trial
from turnout.job.search import how_to_install
from turnout.service.jobs import Caller, JobView
from turnout.store import Store


class Minds(Protocol):
    """Who knows the libraries."""

    def missing(self) -> list[str]:
        """Those that are not installed."""
        ...

    async def importance(self, job_id: int) -> list[tuple[str, float, float]]: ...

    async def picture(self, job_id: int, name: str) -> bytes: ...


class Searches:
    def __init__(self, store: Store, control: Control, minds: Minds) -> None:
        self._store = store
        self._control = control
        self._minds = minds

    def check(self, new: NewJob) -> None:
        """Raises Unsupported for a search that nobody here can conduct."""
        if new.spec.search and (missing := self._minds.missing()):
            raise Unsupported(how_to_install(missing))

    async def trials(self, view: JobView) -> list[Trial]:
        """By number; none for a job that is not a search."""
        return await self._store.trials.of(view.job.id)

    async def trial(self, view: JobView, trial_id: str) -> Trial:
        """Raises NotFound."""
        for trial in await self.trials(view):
            if trial.id == trial_id:
                return trial
        raise NotFound(f"job {view.job.name} has no trial {trial_id}")

    async def measurements(self, view: JobView, number: int) -> list[Measurement]:
        """Of one trial, by step."""
        return await self._store.trials.measurements(view.job.id, number)

    async def all_measurements(self, view: JobView) -> dict[int, list[Measurement]]:
        """Of every trial that has some, by its number."""
        found: dict[int, list[Measurement]] = {}
        for one in await self._store.trials.measurements(view.job.id):
            found.setdefault(one.number, []).append(one)
        return found

    async def stop_trial(self, caller: Caller, view: JobView, trial_id: str) -> Trial:
        """The trial, which ends now or soon; what it has said until then counts. Raises NotFound or WrongState."""
        trial = await self.trial(view, trial_id)
        try:
            await self._control.search(StopTrial(trial.job, trial.number, f"stopped by {caller.key}"))
        except NotFound as error:
            raise WrongState(error.message) from None
        return await self.trial(view, trial_id)

    async def importance(self, view: JobView) -> list[tuple[str, float, float]]:
        """(name, mean, std) of each parameter that varies, the largest first; empty: there is too little to go by."""
        return await self._minds.importance(view.job.id)

    async def picture(self, view: JobView, name: str = "") -> bytes:
        """A PNG: the metric along this parameter; without a name, the importance of all. Raises Invalid."""
        return await self._minds.picture(view.job.id, name)
