"""Runs one live search: asks the study for points, starts trials, and tells it their results until all have run.

Its whole state is in the store, so another service can resume it at any time.
"""

import asyncio
import itertools
import logging
from bisect import bisect_right
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from turnout.errors import AlreadyExists, Invalid, NotFound, NotStored, TimedOut, TurnoutError, WrongState
from turnout.job import Job, Reason, Search, State, Trial, TrialState
from turnout.job.algorithms import budgets
from turnout.limits import Limits
from turnout.search.curve import Curve
from turnout.search.study_client import StudyClient
from turnout.search.trial_monitor import TrialMonitor
from turnout.search.trial_runner import TrialRunner
from turnout.store import Store, StoreError
from turnout.waiting import wait_any

GIVE_UP_AFTER = 10
"""A search without a limit of failed trials gives up after this many, if none has succeeded."""
_PAUSE = 1.0
_ENDED = (TrialState.SUCCEEDED, TrialState.INFEASIBLE)

_log = logging.getLogger(__name__)


class _OutOfDate(TurnoutError):
    """The store has changed since the search was loaded: an earlier request was carried out after all."""


class SearchLoop:
    def __init__(
        self,
        job_id: int,
        store: Store,
        trial_runner: TrialRunner,
        study: StudyClient,
        limits: Limits,
        on_waiting: Callable[[bool], None],
    ) -> None:
        """`on_waiting`: called when the search begins to wait (none of its trials runs), and when it no longer does."""
        self._study = study
        self._limits = limits
        self._job_id = job_id
        self._store = store
        self._trial_runner = trial_runner
        self._on_waiting = on_waiting
        self._waits = True
        self._trials_changed = asyncio.Event()
        self._monitors: dict[int, TrialMonitor] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Runs until the search has ended."""
        while True:
            try:
                if not await self._is_live():
                    return
                await self._load()
                await self._loop()
            except (TimedOut, NotStored, StoreError, _OutOfDate) as error:
                _log.warning("search %s: %s; it is loaded again", self._job_id, error.message)
                await asyncio.sleep(_PAUSE)
            except TurnoutError as error:
                await self._give_up(error.message)
            except Exception:  # noqa: BLE001 - a bug of ours must not leave a job that never ends
                _log.exception("search %s failed inside the service", self._job_id)
                await self._give_up("the service had an internal error; its log has the details")
            finally:
                await self._close()

    async def _is_live(self) -> bool:
        job = await self._store.job(self._job_id)
        return job is not None and job.live

    async def _wants_trials(self) -> bool:
        job = await self._store.job(self._job_id)
        return job is not None and job.live and job.reason is None

    async def _load(self) -> None:
        search = (await self._store.spec(self._job_id)).search
        if search is None:
            raise Invalid("its search specification is missing from the store")
        self._search: Search = search
        self._budget_ends = list(itertools.accumulate(budgets(search)))
        self._exhausted = ""
        found = await self._store.trials.of(self._job_id)
        self._trials = {trial.number: trial for trial in found}
        self._next = 0
        self._succeeded, self._failed = 0, 0
        self._best: Trial | None = None
        self._last_failed: Trial | None = None
        for trial in sorted(found, key=lambda trial: trial.ended or 0):
            self._count(trial)
        job = await self._store.job(self._job_id)
        await self._study.open(search, self._job_id, found, job.project if job else "")
        for trial in found:
            if trial.state not in _ENDED:
                self._monitor(trial, resumed=True)
        self._curves: dict[int, Curve] = {}
        self._checked_counts: dict[int, int] = {}
        """How many values of each trial early stopping has seen."""
        if search.stopping:
            for measurement in await self._store.trials.measurements(self._job_id):
                if measurement.number in self._monitors:
                    continue
                self._curves.setdefault(measurement.number, Curve(search)).add(measurement)

    async def _loop(self) -> None:
        job: Job | None = None
        with self._trial_runner.watch(self._job_id) as changed:
            while True:
                if job is None or changed.is_set():
                    changed.clear()
                    job = await self._store.job(self._job_id)
                    if job is None or not job.live:
                        return
                self._trials_changed.clear()
                for task in self._tasks.values():
                    if task.done() and (error := task.exception()):
                        raise error
                await self._advance(job, wanted=job.reason is None)
                if job.reason is None and self._all_tried() and not self._monitors:
                    await self._finish()
                self._report_waiting()
                await wait_any(changed, self._trials_changed)

    def _report_waiting(self) -> None:
        waits = all(monitor.queued for monitor in self._monitors.values())
        if waits != self._waits:
            self._waits = waits
            self._on_waiting(waits)

    async def _advance(self, job: Job, *, wanted: bool) -> None:
        """Store the results of ended trials and start new ones, in one commit."""
        ended = [monitor for monitor in self._monitors.values() if monitor.ended_trial]
        for monitor in ended:
            await self._record(monitor)
        best = self._best_so_far()
        actions: list[Coroutine[Any, Any, None]] = [self._conclude(monitor, best) for monitor in ended]
        failure = self._give_up_reason() if wanted else ""
        choice_error: TurnoutError | None = None
        if wanted and not failure:
            try:
                actions += [self._start(job, trial) for trial in await self._choose(max(1, len(ended)))]
            except TurnoutError as error:
                choice_error = error
        await _all(actions)
        if choice_error:
            raise choice_error
        if failure:
            await self._trial_runner.finish(self._job_id, State.FAILED, Reason.PROGRAM_FAILED, failure)
        elif wanted and self._search.stopping:
            await self._stop_early()

    async def _record(self, monitor: TrialMonitor) -> None:
        assert monitor.ended_trial
        trial = monitor.ended_trial
        self._trials[trial.number] = trial
        self._count(trial)
        del self._monitors[trial.number]
        if self._search.stopping:
            self._take_curve(monitor)
        value = trial.value if trial.state is TrialState.SUCCEEDED else None
        await self._study.tell(trial.number, value)

    async def _conclude(self, monitor: TrialMonitor, best: str) -> None:
        assert monitor.ended_trial
        try:
            await self._trial_runner.conclude(monitor.ended_trial, monitor.attempt, monitor.unsaved, best)
        except WrongState as error:
            raise _OutOfDate(error.message) from None

    async def _choose(self, most: int) -> list[Trial]:
        """The next trials; none while a trial waits in the queue, because points are chosen as late as possible."""
        if any(monitor.queued for monitor in self._monitors.values()):
            return []
        chosen: list[Trial] = []
        free = min(most, self._search.parallel - len(self._monitors))
        for number in itertools.islice(self._untried(), max(0, free)):
            try:
                point = await self._study.ask(number)
            except Invalid as error:
                self._exhausted = error.message
                self._trials_changed.set()
                break
            algorithm = bisect_right(self._budget_ends, number)
            name = trial_id(self._job_id, number)
            chosen.append(Trial(self._job_id, number, name, algorithm, point, child=0, created=0))
        return chosen

    async def _start(self, job: Job, trial: Trial) -> None:
        try:
            child = await self._trial_runner.create(job, trial)
        except AlreadyExists as error:
            raise _OutOfDate(error.message) from None
        except (WrongState, NotFound):
            if await self._wants_trials():
                raise
            return  # the search was stopped meanwhile
        self._trials[trial.number] = trial
        self._monitor(trial, resumed=False).queued = child.state is State.QUEUED
        self._trials_changed.set()

    def _monitor(self, trial: Trial, *, resumed: bool) -> TrialMonitor:
        monitor = TrialMonitor(
            self._search,
            trial,
            self._store,
            self._trial_runner,
            self._study,
            lambda: self._trials_changed.set(),
            self._limits,
        )
        self._monitors[trial.number] = monitor
        task = asyncio.create_task(monitor.run(resumed), name=f"trial {trial.id}")
        task.add_done_callback(lambda _: self._trials_changed.set())
        self._tasks[trial.number] = task
        for number in [n for n, task in self._tasks.items() if task.done() and n not in self._monitors]:
            del self._tasks[number]
        return monitor

    async def _stop_early(self) -> None:
        """Stop running trials that do badly."""
        for number, monitor in list(self._monitors.items()):
            more = self._take_curve(monitor)
            if not more or monitor.ended_trial or monitor.trial.state is TrialState.STOPPING:
                continue
            if await self._study.should_stop(number, self._curves):
                try:
                    await self._trial_runner.stop_trial(
                        monitor.trial, "stopped early: other trials were better at this point"
                    )
                except WrongState:
                    continue  # the trial has ended

    def _take_curve(self, monitor: TrialMonitor) -> bool:
        """Take over the trial's curve; True if it has new values."""
        number, curve = monitor.trial.number, monitor.curve
        known = self._checked_counts.get(number, 0)
        self._curves[number], self._checked_counts[number] = curve, curve.count
        return curve.count > known

    def _untried(self) -> Iterator[int]:
        """Numbers without a trial, lowest first. A crash can lose one of several trials that were started together."""
        while self._next in self._trials:
            self._next += 1
        if not self._exhausted:
            yield from (n for n in range(self._next, self._budget_ends[-1]) if n not in self._trials)

    def _all_tried(self) -> bool:
        return bool(self._exhausted) or len(self._trials) >= self._budget_ends[-1]

    def _count(self, trial: Trial) -> None:
        if trial.state is TrialState.INFEASIBLE:
            self._failed, self._last_failed = self._failed + 1, trial
        elif trial.state is TrialState.SUCCEEDED and trial.value is not None:
            self._succeeded += 1
            if self._best is None or self._beats(trial, self._best):
                self._best = trial

    def _beats(self, trial: Trial, best: Trial) -> bool:
        """Of two equal values, the trial with the lower number is better."""
        assert trial.value is not None
        assert best.value is not None
        if trial.value == best.value:
            return trial.number < best.number
        return (trial.value > best.value) == (self._search.metric.goal == "max")

    def _give_up_reason(self) -> str:
        """Why the search should fail now; empty if it should go on."""
        if not self._last_failed:
            return ""
        last = f"the last was {self._last_failed.display_name}: {self._last_failed.message}"
        if self._search.max_failed and self._failed >= self._search.max_failed:
            return f"{self._failed} trials failed, and {self._search.max_failed} is the limit; {last}"
        if self._failed >= GIVE_UP_AFTER and not self._search.max_failed and not self._succeeded:
            return f"the first {self._failed} trials failed; {last}"
        return ""

    async def _finish(self) -> None:
        best = self._best_so_far()
        more = f"; it ended before all trials were run: {self._exhausted}" if self._exhausted else ""
        if best:
            await self._trial_runner.finish(self._job_id, State.SUCCEEDED, Reason.SUCCEEDED, best + more)
            return
        last = next((f": {trial.message}" for trial in reversed(self._trials.values()) if trial.message), "")
        message = f"none of {len(self._trials)} trials succeeded{last}{more}"
        await self._trial_runner.finish(self._job_id, State.FAILED, Reason.PROGRAM_FAILED, message)

    def _best_so_far(self) -> str:
        """A description of the best trial, for people."""
        if not (best := self._best):
            return ""
        point = ", ".join(f"{name}={value}" for name, value in best.parameters.items())
        name = self._search.metric.name
        return f"best trial {best.display_name} of {self._succeeded}: {name}={best.value:g} with {point}"

    async def _give_up(self, why: str) -> None:
        """Fail the search and stop its trials: a library or a key is missing, or the space is not valid."""
        _log.warning("search %s: %s", self._job_id, why)
        try:
            await self._trial_runner.finish(self._job_id, State.FAILED, Reason.REFUSED, why)
            for trial in await self._store.trials.of(self._job_id):
                if trial.state not in _ENDED:
                    await self._abandon(trial, why)
        except NotFound:
            return  # the search has ended
        except TurnoutError as error:
            _log.warning("search %s: %s; it is loaded again", self._job_id, error.message)
            await asyncio.sleep(_PAUSE)

    async def _abandon(self, trial: Trial, why: str) -> None:
        with self._trial_runner.watch(trial.child) as changed:
            while (job := await self._store.job(trial.child)) and job.live:
                await changed.wait()
                changed.clear()
        trial.state, trial.message = TrialState.INFEASIBLE, why
        trial.ended = job.ended if job else trial.created
        await self._trial_runner.conclude(trial, job.attempt if job else 0, (), "")

    async def _close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks, self._monitors = {}, {}


def trial_id(job_id: int, number: int) -> str:
    """Eight hexadecimal digits, unique among the trials of a search."""
    return f"{(job_id * 0x9E3779B1 + number * 0x85EBCA6B) % (1 << 32):08x}"


async def _all(actions: list[Coroutine[Any, Any, None]]) -> None:
    """Await all of them, then raise the first error."""
    for result in await asyncio.gather(*actions, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
