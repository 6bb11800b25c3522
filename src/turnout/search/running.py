"""One live search: asks for points, has them tried, tells how they did, until there is nothing more to try.

All that it knows is in the store: it can be taken up at any time by another.
"""

import asyncio
import itertools
import logging
from bisect import bisect_right
from collections.abc import Coroutine, Iterator
from typing import Any

from turnout.errors import AlreadyExists, Invalid, NotFound, TimedOut, TurnoutError, WrongState
from turnout.job import Job, Measurement, Reason, Search, State, Trial, TrialState
from turnout.job.algorithms import budgets
from turnout.search.asker import Asker
from turnout.search.hands import Hands
from turnout.search.watch import Watch, first_of
from turnout.store import Store, StoreError

HOPELESS = 10
"""Where no number of failed trials is too many: so many, and not one that succeeded, are."""
_PAUSE = 1.0
_OVER = (TrialState.SUCCEEDED, TrialState.INFEASIBLE)

_log = logging.getLogger(__name__)


class _Behind(TurnoutError):
    """The store knows more than is known here: what was asked for had been done already."""


class Running:
    def __init__(self, job_id: int, store: Store, hands: Hands, asker: Asker) -> None:
        self.asker = asker
        self._job_id = job_id
        self._store = store
        self._hands = hands
        self._news = asyncio.Event()
        self._watches: dict[int, Watch] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Until it has ended."""
        while True:
            try:
                if not await self._live():
                    return
                await self._open()
                await self._go()
            except (TimedOut, StoreError, _Behind) as error:
                _log.warning("search %s: %s; it is taken up again", self._job_id, error.message)
                await asyncio.sleep(_PAUSE)
            except TurnoutError as error:
                await self._give_up(error.message)
            except Exception:  # noqa: BLE001 - a fault of ours must not leave a job that never ends
                _log.exception("search %s went wrong", self._job_id)
                await self._give_up("something went wrong inside the service; its log has the details")
            finally:
                await self._close()

    async def _live(self) -> bool:
        job = await self._store.job(self._job_id)
        return job is not None and job.live

    async def _wanted(self) -> bool:
        job = await self._store.job(self._job_id)
        return job is not None and job.live and job.reason is None

    async def _open(self) -> None:
        """As the store has it."""
        search = (await self._store.spec(self._job_id)).search
        if search is None:
            raise Invalid("what it was to try is not known any more")
        self._search: Search = search
        self._ends = list(itertools.accumulate(budgets(search)))
        self._exhausted = ""
        found = await self._store.trials.of(self._job_id)
        self._trials = {trial.number: trial for trial in found}
        self._next = 0
        self._succeeded, self._failed = 0, 0
        self._best: Trial | None = None
        self._last_failed: Trial | None = None
        for trial in sorted(found, key=lambda trial: trial.ended or 0):
            self._count(trial)
        await self.asker.open(search, self._job_id, found)
        for trial in found:
            if trial.state not in _OVER:
                self._watch(trial, resumed=True)
        self._curves: list[Measurement] = []
        if search.stopping:
            self._curves = await self._store.trials.measurements(self._job_id)

    async def _go(self) -> None:
        job: Job | None = None
        with self._hands.watch(self._job_id) as changed:
            while True:
                if job is None or changed.is_set():
                    changed.clear()
                    job = await self._store.job(self._job_id)
                    if job is None or not job.live:
                        return
                self._news.clear()
                for task in self._tasks.values():
                    if task.done() and (error := task.exception()):
                        raise error
                await self._advance(job, wanted=job.reason is None)
                if job.reason is None and self._all_tried() and not self._watches:
                    await self._finish()
                await first_of(changed, self._news)

    async def _advance(self, job: Job, *, wanted: bool) -> None:
        """What is over is told and something new is begun in one commit."""
        over = [watch for watch in self._watches.values() if watch.over]
        for watch in over:
            await self._take_in(watch)
        best = self._praise()
        doing: list[Coroutine[Any, Any, None]] = [self._conclude(watch, best) for watch in over]
        trouble = self._trouble() if wanted else ""
        broken: TurnoutError | None = None
        if wanted and not trouble:
            try:
                doing += [self._begin(job, trial) for trial in await self._choose(max(1, len(over)))]
            except TurnoutError as error:
                broken = error
        await _all(doing)
        if broken:
            raise broken
        if trouble:
            await self._hands.finish(self._job_id, State.FAILED, Reason.PROGRAM_FAILED, trouble)
        elif wanted and self._search.stopping:
            await self._judge()

    async def _take_in(self, watch: Watch) -> None:
        assert watch.over
        trial = watch.over
        self._trials[trial.number] = trial
        self._count(trial)
        del self._watches[trial.number]
        if self._search.stopping:
            self._learn(watch)
        value = trial.value if trial.state is TrialState.SUCCEEDED else None
        await self.asker.tell(trial.number, value)

    async def _conclude(self, watch: Watch, best: str) -> None:
        assert watch.over
        try:
            await self._hands.conclude(watch.over, watch.attempt, watch.fresh, best)
        except WrongState as error:
            raise _Behind(error.message) from None

    async def _choose(self, most: int) -> list[Trial]:
        """What is tried next. Nobody follows one that still waits for a place: its point would be chosen too early."""
        if any(watch.queued for watch in self._watches.values()):
            return []
        chosen: list[Trial] = []
        free = min(most, self._search.parallel - len(self._watches))
        for number in itertools.islice(self._untried(), max(0, free)):
            try:
                point = await self.asker.ask(number)
            except Invalid as error:
                self._exhausted = error.message
                self._news.set()
                break
            algorithm = bisect_right(self._ends, number)
            name = trial_id(self._job_id, number)
            chosen.append(Trial(self._job_id, number, name, algorithm, point, child=0, created=0))
        return chosen

    async def _begin(self, job: Job, trial: Trial) -> None:
        try:
            child = await self._hands.create(job, trial)
        except AlreadyExists as error:
            raise _Behind(error.message) from None
        except (WrongState, NotFound):
            if await self._wanted():
                raise
            return  # it was stopped meanwhile, which is told
        self._trials[trial.number] = trial
        self._watch(trial, resumed=False).queued = child.state is State.QUEUED
        self._news.set()

    def _watch(self, trial: Trial, *, resumed: bool) -> Watch:
        watch = Watch(self._search, trial, self._store, self._hands, self.asker, lambda: self._news.set())
        self._watches[trial.number] = watch
        task = asyncio.create_task(watch.run(resumed), name=f"trial {trial.id}")
        task.add_done_callback(lambda _: self._news.set())
        self._tasks[trial.number] = task
        for number in [n for n, task in self._tasks.items() if task.done() and n not in self._watches]:
            del self._tasks[number]
        return watch

    async def _judge(self) -> None:
        """End those that do badly, by what they have said so far."""
        for number, watch in list(self._watches.items()):
            more = self._learn(watch)
            if not more or watch.over or watch.trial.state is TrialState.STOPPING:
                continue
            if await self.asker.should_stop(number, self._curves):
                try:
                    await self._hands.stop_trial(watch.trial, "stopped early: others did better by then")
                except WrongState:
                    continue  # it is over

    def _learn(self, watch: Watch) -> bool:
        """Whether it has said something since the last time."""
        known = sum(one.number == watch.trial.number for one in self._curves)
        self._curves += watch.curve[known:]
        return len(watch.curve) > known

    def _untried(self) -> Iterator[int]:
        """From the lowest on: where several were begun at once, a kill may have lost one and left those behind it."""
        while self._next in self._trials:
            self._next += 1
        if not self._exhausted:
            yield from (n for n in range(self._next, self._ends[-1]) if n not in self._trials)

    def _all_tried(self) -> bool:
        return bool(self._exhausted) or len(self._trials) >= self._ends[-1]

    def _count(self, trial: Trial) -> None:
        """One more that is over."""
        if trial.state is TrialState.INFEASIBLE:
            self._failed, self._last_failed = self._failed + 1, trial
        elif trial.state is TrialState.SUCCEEDED and trial.value is not None:
            self._succeeded += 1
            if self._best is None or self._beats(trial, self._best):
                self._best = trial

    def _beats(self, trial: Trial, best: Trial) -> bool:
        """Of two that did as well, the one that was asked for first is the better one."""
        assert trial.value is not None
        assert best.value is not None
        if trial.value == best.value:
            return trial.number < best.number
        return (trial.value > best.value) == (self._search.metric.goal == "max")

    def _trouble(self) -> str:
        """Why it makes no sense to go on."""
        if not self._last_failed:
            return ""
        told = f"the last was {self._last_failed.called}: {self._last_failed.message}"
        if self._search.max_failed and self._failed >= self._search.max_failed:
            return f"{self._failed} trials failed, which is as many as may; {told}"
        if self._failed >= HOPELESS and not self._search.max_failed and not self._succeeded:
            return f"the first {self._failed} trials failed; {told}"
        return ""

    async def _finish(self) -> None:
        best = self._praise()
        more = f"; it ended before all trials were made: {self._exhausted}" if self._exhausted else ""
        if best:
            await self._hands.finish(self._job_id, State.SUCCEEDED, Reason.SUCCEEDED, best + more)
            return
        told = next((f": {one.message}" for one in reversed(self._trials.values()) if one.message), "")
        message = f"none of {len(self._trials)} trials succeeded{told}{more}"
        await self._hands.finish(self._job_id, State.FAILED, Reason.PROGRAM_FAILED, message)

    def _praise(self) -> str:
        """The best so far, for people."""
        if not (best := self._best):
            return ""
        point = ", ".join(f"{name}={value}" for name, value in best.parameters.items())
        return f"best trial {best.called} of {self._succeeded}: {self._search.metric.name}={best.value:g} with {point}"

    async def _give_up(self, why: str) -> None:
        """It cannot go on: no library, no key, a space that makes no sense. What still runs is ended."""
        _log.warning("search %s: %s", self._job_id, why)
        try:
            await self._hands.finish(self._job_id, State.FAILED, Reason.REFUSED, why)
            for trial in await self._store.trials.of(self._job_id):
                if trial.state not in _OVER:
                    await self._abandon(trial, why)
        except NotFound:
            return  # it has ended
        except TurnoutError as trouble:
            _log.warning("search %s: %s; it is taken up again", self._job_id, trouble.message)
            await asyncio.sleep(_PAUSE)

    async def _abandon(self, trial: Trial, why: str) -> None:
        with self._hands.watch(trial.child) as changed:
            while (job := await self._store.job(trial.child)) and job.live:
                await changed.wait()
                changed.clear()
        trial.state, trial.message = TrialState.INFEASIBLE, why
        trial.ended = job.ended if job else trial.created
        await self._hands.conclude(trial, job.attempt if job else 0, (), "")

    async def _close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks, self._watches = {}, {}
        await self.asker.close()


def trial_id(job_id: int, number: int) -> str:
    """Eight hexadecimal digits, which no two trials of a search share."""
    return f"{(job_id * 0x9E3779B1 + number * 0x85EBCA6B) % (1 << 32):08x}"


async def _all(doing: list[Coroutine[Any, Any, None]]) -> None:
    """Each of them; then the first error, if there was one."""
    for result in await asyncio.gather(*doing, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
