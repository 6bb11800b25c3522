"""One trial on its way: reads what it says as it says it, and finds out how it did when it has ended."""

import asyncio
import logging
import math
from collections.abc import Callable

import msgspec

from turnout.errors import Invalid, TimedOut, TurnoutError, Unavailable
from turnout.job import Job, Measurement, Reason, Search, State, Trial, TrialState
from turnout.job.search import printed
from turnout.search.asker import Asker
from turnout.search.hands import Hands
from turnout.search.metrics import HYPERTUNE, Gathered, Said, number, read_hypertune, read_line, shortened
from turnout.store import Store, StoreError

QUICK_SECONDS = 0.05
"""Who has ended by then is read once, at its end."""
LOOK_SECONDS = 0.2
"""Two looks at a log that grows are so far apart."""
FILE_SECONDS = 10.0
PASSING = (StoreError, TimedOut, Unavailable)
"""No fault of the trial: it is read once more, or the search has to end."""
_KEEP_LINES = 10_000
_LONGEST_WORDS = 200
_SCANS = 2
"""Who is too slow may have waited for others. Twice is enough: the next lines would take as long."""

_log = logging.getLogger(__name__)


class Watch:
    def __init__(
        self, search: Search, trial: Trial, store: Store, hands: Hands, asker: Asker, told: Callable[[], None]
    ) -> None:
        """`told` is called when the trial has its place, and when it is over."""
        self.trial = trial
        self.queued = True
        """Its job has no place, or loses it to another, as far as is known."""
        self.over: Trial | None = None
        """How it did, once that is known; nobody else knows it yet."""
        self.attempt = 0
        self.fresh: list[Measurement] = []
        """What it measured and is not in the store."""
        self.curve: list[Measurement] = []
        """What it measured of the metric that decides, in the order in which it came."""
        self._search, self._store, self._hands, self._asker, self._told = search, store, hands, asker, told
        self._gathered = Gathered(search, trial.job, trial.number)
        self._cursor = ""
        self._read_since = 0
        self._last_line = ""
        self._blind = ""
        """Why its lines are not searched for the metrics any more."""
        self._reports_by_file = False
        self._grew = asyncio.Event()
        self._follower: asyncio.Task[None] | None = None
        self._followed = 0

    async def run(self, resumed: bool) -> None:
        """Until it is over. Raises PASSING. `resumed`: it was watched before, by a service that is gone."""
        trial = self.trial
        if resumed:
            known = await self._store.trials.measurements(trial.job, trial.number)
            # What was said last counts, which another attempt may have said of an earlier step.
            self.curve = sorted(known, key=lambda one: one.at)
            self._gathered = Gathered(self._search, trial.job, trial.number, self.curve)
            self._cursor = (await self._store.trials.cursor(trial.job, trial.number)).decode()
        try:
            job = await self._until_ended()
            await self._read_to_the_end(job)
        finally:
            if self._follower:
                self._follower.cancel()
        self.attempt = job.attempt
        self.over = self._judged(job)
        self._told()

    async def _until_ended(self) -> Job:
        with self._hands.watch(self.trial.child) as changed:
            pause: float | None = None
            while True:
                changed.clear()
                job = await self._store.job(self.trial.child)
                assert job is not None, "a trial and its job are made together"
                if not job.live:
                    return job
                if self.queued != _waits(job):
                    self.queued = not self.queued
                    self._told()
                if job.state is State.RUNNING and self._followed != job.attempt:
                    if pause is not None or self._follower:
                        await self._follow(job)
                    pause = (
                        FILE_SECONDS if self._reports_by_file else None if self._follower else QUICK_SECONDS
                    )
                await first_of(changed, self._grew, timeout=pause)
                if self._follower and not changed.is_set():
                    await self._look(job)
                    # A program that prints all the time is read now and then; its end is not waited for.
                    await first_of(changed, timeout=LOOK_SECONDS)

    async def _follow(self, job: Job) -> None:
        if self._follower:
            self._follower.cancel()
        self._followed = job.attempt
        self._reports_by_file = await self._hands.written(job, HYPERTUNE) is not None
        self._follower = asyncio.create_task(self._watch_logs(job))

    async def _watch_logs(self, job: Job) -> None:
        async for _ in self._hands.grown(job):
            self._grew.set()

    async def _look(self, job: Job) -> None:
        """Take in what is new, keep it, and see whether there is any point in going on."""
        self._grew.clear()
        try:
            if await self._read(job):
                self._take_file(await self._written(job))
            else:
                self._grew.set()
        except TurnoutError as error:
            self._warn(error)
            return
        fresh = self._take()
        if fresh or self._read_since > _KEEP_LINES:
            await self._keep(fresh)
        if fresh and self._search.stopping:
            self._told()

    async def _keep(self, fresh: list[Measurement]) -> None:
        self._read_since = 0
        trial = self.trial
        await self._store.trials.measured(trial.job, trial.number, fresh, self._cursor.encode())

    async def _read_to_the_end(self, job: Job) -> None:
        _, written = await asyncio.gather(self._read_all(job), self._written(job))
        self._take_file(written)
        self.fresh = self._take()

    async def _read_all(self, job: Job) -> None:
        try:
            while not await self._read(job):
                # The rest is kept with the end of the trial, in a commit that others share.
                if self._read_since > _KEEP_LINES:
                    await self._keep(self._take())
        except PASSING:
            raise
        except TurnoutError as error:
            self._warn(error)

    async def _written(self, job: Job) -> bytes:
        try:
            return await self._hands.written(job, HYPERTUNE) or b""
        except PASSING:
            raise
        except TurnoutError as error:
            self._warn(error)
            return b""

    def _warn(self, error: TurnoutError) -> None:
        _log.warning("trial %s of job %s: %s", self.trial.id, self.trial.job, error.message)

    async def _read(self, job: Job) -> bool:
        """Whether that was all."""
        lines, cursor, over = await self._hands.lines(job, self._cursor)
        for said in await self._said(lines):
            self._gathered.add(said)
        self._last_line = next((line for _, line in reversed(lines) if line.strip()), self._last_line)
        self._cursor = cursor
        self._read_since += len(lines)
        return over

    def _take_file(self, data: bytes) -> None:
        for said in read_hypertune(data):
            self._gathered.add(said)

    async def _said(self, lines: list[tuple[int, str]]) -> list[Said]:
        """By all its ways of saying it, in the order of the lines."""
        found: list[tuple[int, Said]] = []
        for place, texts in await self._scanned(lines):
            values = {name: value for name, text in texts.items() if (value := number(text)) is not None}
            if values:
                found.append((place, Said(lines[place][0], values)))
        for place, (at, line) in enumerate(lines):
            if said := read_line(at, line):
                found.append((place, said))
        return [said for _, said in sorted(found, key=lambda one: one[0])]

    async def _scanned(self, lines: list[tuple[int, str]]) -> list[tuple[int, dict[str, str]]]:
        if self._blind or not lines or not any(metric.regex for metric in self._search.metrics):
            return []
        texts = [shortened(line) for _, line in lines]
        for _ in range(_SCANS):
            try:
                found = await self._asker.scan(texts)
                self._blind = ""
                return found
            except Invalid as error:
                self._blind = error.message
                self._warn(error)
        return []

    def _take(self) -> list[Measurement]:
        fresh = self._gathered.take()
        name = self._search.metric.name
        known = {one.step for one in self.curve}
        self.curve += [one for one in fresh if name in one.metrics and one.step not in known]
        return fresh

    def _judged(self, job: Job) -> Trial:
        value, metrics = self._gathered.outcome()
        name = self._search.metric.name
        state, message = TrialState.SUCCEEDED, ""
        fine = value is not None and math.isfinite(value)
        if job.state is State.FAILED:
            state, message = TrialState.INFEASIBLE, (job.message or str(job.reason)) + self._last_words()
        elif not fine and job.reason is Reason.STOPPED:
            state, message = TrialState.INFEASIBLE, f"{job.message}, before it had a value of {name}"
        elif not fine:
            state = TrialState.INFEASIBLE
            message = f"its last {name} is {value}" if value is not None else self._silence(name)
        elif job.reason is Reason.STOPPED:
            message = job.message
        return msgspec.structs.replace(
            self.trial,
            state=state,
            value=value if fine and state is TrialState.SUCCEEDED else None,
            metrics=metrics,
            ended=job.ended or job.updated,
            message=message,
        )

    def _last_words(self) -> str:
        """So that whoever reads of a failure need not look for its log first."""
        text = self._last_line.strip()
        return f"; the last line that it printed: {text[:_LONGEST_WORDS]}" if text else ""

    def _silence(self, name: str) -> str:
        regex = self._search.metric.regex
        if self._blind:
            return f"it ended without a value of {name}: {self._blind}"
        if regex == printed(name):
            how = f"no line of its log is like {name}=0.9"
        elif regex:
            how = f"no line of its log has a number for {regex}"
        else:
            how = f"it printed no line TURNOUT_METRIC {name}=0.9, and nothing came by cloudml-hypertune"
        return f"it ended without a value of {name}: {how}"


def _waits(job: Job) -> bool:
    """It has no place, or is about to have none."""
    preempted = job.state is State.STOPPING and job.reason is Reason.PREEMPTED
    return preempted or job.state is State.QUEUED


async def first_of(*events: asyncio.Event, timeout: float | None = None) -> None:
    """Wait until one of them is set, at most so long."""
    if any(event.is_set() for event in events):
        return
    tasks = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
