"""All searches: each that is live is seen to by a task of its own; what mattered can be asked of any."""

import asyncio
import logging
from pathlib import Path

from turnout.errors import NotFound
from turnout.job import Search
from turnout.search.asker import Asker, missing_packages
from turnout.search.hands import Hands
from turnout.search.running import Running
from turnout.store import Store

_MOST_ASKED = 8

_log = logging.getLogger(__name__)


class Conductor:
    def __init__(self, store: Store, hands: Hands, cache: Path | None = None) -> None:
        """`cache`: see Asker."""
        self._store = store
        self._hands = hands
        self._cache = cache
        self._running: dict[int, tuple[Running, asyncio.Task[None]]] = {}
        self._asked: dict[int, Asker] = {}

    def start(self) -> None:
        """Take up what was live when the last service ended."""
        for job_id in self._hands.searching():
            self.take(job_id)

    def take(self, job_id: int) -> None:
        """See to a search that has been created."""
        if job_id in self._running:
            return
        running = Running(job_id, self._store, self._hands, Asker(cache=self._cache))
        task = asyncio.create_task(running.run(), name=f"search {job_id}")
        self._running[job_id] = running, task
        task.add_done_callback(lambda task: self._over(job_id, task))

    async def close(self) -> None:
        """Trials go on running; the next service takes them up."""
        running = list(self._running.values())
        for _, task in running:
            task.cancel()
        await asyncio.gather(*(task for _, task in running), return_exceptions=True)
        for asker in (*(one.asker for one, _ in running), *self._asked.values()):
            await asker.close()

    def missing(self) -> list[str]:
        """The libraries that are not installed."""
        return missing_packages()

    async def importance(self, job_id: int) -> list[tuple[str, float, float]]:
        """(name, mean, std) of each parameter that varies, the largest first; empty: there is too little to go by."""
        return await (await self._asker(job_id)).importance()

    async def picture(self, job_id: int, name: str) -> bytes:
        """A PNG: the metric along this parameter; without a name, the importance of all."""
        return await (await self._asker(job_id)).picture(name)

    async def _asker(self, job_id: int) -> Asker:
        """One of its own, so that nobody who looks changes what is asked next."""
        search, trials = await self._search(job_id), await self._store.trials.of(job_id)
        asker = self._asked.pop(job_id, None) or Asker(cache=self._cache)
        self._asked[job_id] = asker
        await asker.open(search, job_id, trials)
        if len(self._asked) > _MOST_ASKED:
            await self._asked.pop(next(iter(self._asked))).close()
        return asker

    async def _search(self, job_id: int) -> Search:
        search = (await self._store.spec(job_id)).search
        if search is None:
            raise NotFound(f"job {job_id} is not a search")
        return search

    def _over(self, job_id: int, task: asyncio.Task[None]) -> None:
        del self._running[job_id]
        if not task.cancelled() and (error := task.exception()):
            _log.error("search %s was left", job_id, exc_info=error)
