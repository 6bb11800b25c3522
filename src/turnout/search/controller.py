"""Runs all live searches, each in a task of its own, and computes importance and plots of any search."""

import asyncio
import logging

from turnout.errors import NotFound
from turnout.job import Search
from turnout.limits import Limits
from turnout.search.search_loop import SearchLoop
from turnout.search.study_client import StudyClient, missing_packages
from turnout.search.trial_runner import TrialRunner
from turnout.search.worker_pool import SearchWorkerPool
from turnout.store import Store

_log = logging.getLogger(__name__)


class SearchController:
    def __init__(
        self, store: Store, trial_runner: TrialRunner, pool: SearchWorkerPool, limits: Limits | None = None
    ) -> None:
        """Takes over the pool: `close` closes it."""
        self._limits = limits or Limits()
        self._store = store
        self._trial_runner = trial_runner
        self._pool = pool
        self._running: dict[int, tuple[SearchLoop, asyncio.Task[None]]] = {}

    def start(self) -> None:
        """Resume the searches that were live when the last service ended."""
        for job_id in self._trial_runner.live_searches():
            self.add(job_id)

    def add(self, job_id: int) -> None:
        """Run a search that has been created."""
        if job_id in self._running:
            return
        running = SearchLoop(job_id, self._store, self._trial_runner, StudyClient(self._pool), self._limits)
        task = asyncio.create_task(running.run(), name=f"search {job_id}")
        self._running[job_id] = running, task
        task.add_done_callback(lambda task: self._on_done(job_id, task))

    async def close(self) -> None:
        """Trials keep running; the next service resumes their searches."""
        running = list(self._running.values())
        for _, task in running:
            task.cancel()
        await asyncio.gather(*(task for _, task in running), return_exceptions=True)
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

    def _on_done(self, job_id: int, task: asyncio.Task[None]) -> None:
        del self._running[job_id]
        if not task.cancelled() and (error := task.exception()):
            _log.error("search %s ended with an error", job_id, exc_info=error)
