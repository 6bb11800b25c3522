"""The trials of a search: read and stop them, and compute parameter importance."""

import asyncio
from collections.abc import Sequence
from math import isfinite, nan
from typing import NamedTuple, Protocol

from turnout import pools
from turnout.control import Controller
from turnout.control.turn import StopTrial
from turnout.errors import NotFound, Unsupported, WrongState
from turnout.job import Measurement, NewJob, Trial, TrialState
from turnout.job.search import Metric, how_to_install
from turnout.service.jobs import Caller, JobView
from turnout.store import Store

MOST_SHOWN = 1000
"""Measurements of one trial in a response. A response has at most ten times as many values."""
_LEAST_SHOWN = 10
_KEPT = 100
"""Importances of so many searches are kept."""
_ON_LOOP = 100
"""Up to this many rows are read on the event loop, because starting a thread would take longer."""


class SearchAnalysis(Protocol):
    """The parts of `search.SearchController` that use the libraries."""

    def missing(self) -> list[str]:
        """The names of the libraries that are not installed."""
        ...

    async def importance(self, job_id: int) -> list[tuple[str, float, float]]: ...

    async def picture(self, job_id: int, name: str) -> bytes: ...


class _Importance(NamedTuple):
    results: int
    """The number of trials with a result."""
    computed: asyncio.Future[list[tuple[str, float, float]]]


class Searches:
    def __init__(self, store: Store, control: Controller, analysis: SearchAnalysis) -> None:
        self._store = store
        self._control = control
        self._analysis = analysis
        self._importance: dict[int, _Importance] = {}

    def check(self, new: NewJob) -> None:
        """Raises Unsupported for a search if libraries are missing."""
        if new.spec.search and (missing := self._analysis.missing()):
            raise Unsupported(how_to_install(missing))

    async def trials(self, view: JobView) -> list[Trial]:
        """Sorted by number; empty if the job is not a search."""
        return await self._store.trials.of(view.job.id)

    async def trials_page(self, view: JobView, first: int, limit: int) -> list[Trial]:
        """Trials from this number on, sorted by number."""
        rows = await self._store.trials.page(view.job.id, first, limit)
        if len(rows) <= _ON_LOOP:
            return self._store.trials.read(rows)
        return await pools.logs.run(view.job.project, self._store.trials.read, rows)

    async def counts(self, ids: Sequence[int]) -> list[dict[TrialState, int]]:
        """How many trials of each search are in each state."""
        return await self._store.trials.counts(ids)

    async def trial(self, view: JobView, trial_id: str) -> Trial:
        """Raises NotFound."""
        for trial in await self.trials(view):
            if trial.id == trial_id:
                return trial
        raise NotFound(f"job {view.job.name} has no trial {trial_id}")

    async def measurements(self, view: JobView, number: int) -> list[Measurement]:
        """The measurements of one trial, sorted by step. If there are very many: a sample that includes the best."""
        return await self._sampled(view, number, 1, await self._metric(view))

    async def all_measurements(self, view: JobView) -> dict[int, list[Measurement]]:
        """Measurements by trial number. If there are very many: an even sample of each trial that includes its best."""
        counts = await self._store.trials.measured_trials(view.job.id)
        found: dict[int, list[Measurement]] = {}
        if sum(counts.values()) <= MOST_SHOWN // 10:
            for measurement in await self._store.trials.measurements(view.job.id):
                found.setdefault(measurement.number, []).append(measurement)
            return found
        metric = await self._metric(view)
        for number in counts:
            # One trial at a time, so that only the sample of each stays in memory.
            if sampled := await self._sampled(view, number, len(counts), metric):
                found[number] = sampled
        return found

    async def _sampled(
        self, view: JobView, number: int, trials: int, metric: Metric | None
    ) -> list[Measurement]:
        """The measurements of one trial, for a response about this number of trials."""
        rows = await self._store.trials.measurement_rows(view.job.id, number)

        def read() -> list[Measurement]:
            found = self._store.trials.read_measurements(rows)
            return thinned(found, _most(found, trials), metric) if found else []

        return read() if len(rows) <= _ON_LOOP else await pools.logs.run(view.job.project, read)

    async def _metric(self, view: JobView) -> Metric | None:
        search = (await self._store.spec(view.job.id)).search
        return search.metric if search else None

    async def stop_trial(self, caller: Caller, view: JobView, trial_id: str) -> Trial:
        """Stop the trial, which keeps the metrics that it has reported. Raises NotFound or WrongState."""
        trial = await self.trial(view, trial_id)
        try:
            await self._control.search(StopTrial(trial.job, trial.number, f"stopped by {caller.key}"))
        except NotFound as error:
            raise WrongState(error.message) from None
        return await self.trial(view, trial_id)

    async def importance(self, view: JobView) -> list[tuple[str, float, float]]:
        """(name, mean, std) of each parameter that varies, the largest first; empty if there are too few results.

        Computed once for each number of results.
        """
        job_id = view.job.id
        results = (await self.counts([job_id]))[0].get(TrialState.SUCCEEDED, 0)
        known = self._importance.pop(job_id, None)
        if known is None or known.results != results or known.computed.cancelled():
            known = _Importance(results, asyncio.ensure_future(self._analysis.importance(job_id)))
        self._importance[job_id] = known
        while len(self._importance) > _KEPT:
            del self._importance[next(iter(self._importance))]
        # Shared by all who ask, so one who leaves must not cancel it for the others.
        return await asyncio.shield(known.computed)

    async def picture(self, view: JobView, name: str = "") -> bytes:
        """A PNG of the metric along this parameter; without a name, of the importance of all. Raises Invalid."""
        return await self._analysis.picture(view.job.id, name)


def thinned(measurements: list[Measurement], most: int, metric: Metric | None) -> list[Measurement]:
    """An even sample of at most `most`, plus the best one; includes the first and the last."""
    if len(measurements) <= most:
        return measurements
    last = len(measurements) - 1
    indices = {index * last // (most - 1) for index in range(most)}
    if metric:
        good = [n for n, row in enumerate(measurements) if isfinite(row.metrics.get(metric.name, nan))]
        best = (max if metric.goal == "max" else min)(
            good, key=lambda n: measurements[n].metrics[metric.name], default=0
        )
        indices.add(best)
    return [measurements[index] for index in sorted(indices)]


def _most(measurements: list[Measurement], trials: int) -> int:
    """How many measurements of one trial are shown."""
    names = max(len(measurement.metrics) for measurement in measurements)
    return max(_LEAST_SHOWN, min(MOST_SHOWN, 10 * MOST_SHOWN // (trials * names)))
