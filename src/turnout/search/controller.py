"""Runs live searches, each in a task of its own, and computes importance and plots of any search."""

import asyncio
import logging
from collections.abc import Hashable
from functools import partial

from turnout.errors import NotFound
from turnout.job import Search
from turnout.limits import Limits
from turnout.search.admission import MOST_WAITING, Admission
from turnout.search.search_loop import SearchLoop
from turnout.search.study_client import StudyClient, missing_packages
from turnout.search.trial_runner import TrialRunner
from turnout.search.worker_pool import SearchWorkerPool
from turnout.store import Store

_log = logging.getLogger(__name__)


class SearchController:
    def __init__(
        self,
        store: Store,
        trial_runner: TrialRunner,
        pool: SearchWorkerPool,
        limits: Limits | None = None,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        """Takes over the pool: `close` closes it. `most_waiting`: see Admission."""
        self._limits = limits or Limits()
        self._store = store
        self._trial_runner = trial_runner
        self._pool = pool
        self._admission = Admission(self._run, most_waiting)
        self._running: dict[int, asyncio.Task[None]] = {}
        self._closing = False

    def start(self) -> None:
        """Resume the searches that were live when the last service ended."""
        for job_id in self._trial_runner.live_searches():
            self.look_at(job_id)

    def look_at(self, job_id: int) -> None:
        """Call it when a job is new or has changed; it need not be a search."""
        if job_id in self._running:
            return
        search = self._trial_runner.live_search(job_id)
        if search is None:
            self._admission.drop(job_id)
        elif search.has_trials:
            self._admission.waits(job_id, search.kind)
            self._run(job_id, search.kind)
        else:
            self._admission.hold(job_id, search.kind)

    async def close(self) -> None:
        """Trials keep running; the next service resumes their searches."""
        self._closing = True
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._pool.close()

    def missing(self) -> list[str]:
        """The names of the libraries that are not installed."""
        return missing_packages()

    async def importance(self, job_id: int) -> list[tuple[str, float, float]]:
        """(name, mean, std) of each parameter that varies, the largest first; empty if there are too few results."""
        return await (await self._study(job_id)).importance()

    async def picture(self, job_id: int, name: str) -> bytes:
        """A PNG of the metric along this parameter; without a name, of the importance of all parameters."""
        return await (await self._study(job_id)).picture(name)

    async def _study(self, job_id: int) -> StudyClient:
        """A new client of the search, so that reading never changes what the running search suggests next."""
        search, trials = await self._search(job_id), await self._store.trials.of(job_id)
        job = await self._store.job(job_id)
        study = StudyClient(self._pool)
        await study.open(search, job_id, trials, job.project if job else "")
        return study

    async def _search(self, job_id: int) -> Search:
        search = (await self._store.spec(job_id)).search
        if search is None:
            raise NotFound(f"job {job_id} is not a search")
        return search

    def _run(self, job_id: int, kind: Hashable) -> None:
        study = StudyClient(self._pool)
        on_waiting = partial(self._on_waiting, job_id, kind)
        running = SearchLoop(job_id, self._store, self._trial_runner, study, self._limits, on_waiting)
        task = self._running[job_id] = asyncio.create_task(running.run(), name=f"search {job_id}")
        task.add_done_callback(partial(self._on_done, job_id, kind))

    def _on_waiting(self, job_id: int, kind: Hashable, waiting: bool) -> None:
        if waiting:
            self._admission.waits(job_id, kind)
        else:
            self._admission.leaves(job_id, kind)

    def _on_done(self, job_id: int, kind: Hashable, task: asyncio.Task[None]) -> None:
        del self._running[job_id]
        if not self._closing:
            self._admission.leaves(job_id, kind)
        if not task.cancelled() and (error := task.exception()):
            _log.error("search %s ended with an error", job_id, exc_info=error)
