"""Follows one running trial: reads its metrics as they are reported, and determines its result when it has ended."""

import asyncio
import logging
import math
from collections.abc import Callable, Sequence

import msgspec

from turnout.errors import Invalid, NotStored, TimedOut, TurnoutError, Unavailable
from turnout.job import Job, Measurement, Reason, Search, State, Trial, TrialState
from turnout.job.search import default_regex
from turnout.limits import Limits
from turnout.search.curve import Curve
from turnout.search.metrics import (
    HYPERTUNE,
    MetricReport,
    TrialMetrics,
    number,
    read_hypertune,
    read_line,
    shortened,
)
from turnout.search.study_client import StudyClient
from turnout.search.trial_runner import TrialRunner
from turnout.store import Store, StoreError
from turnout.waiting import wait_any

QUICK_SECONDS = 0.05
"""A trial that ends within this time is read once, at its end."""
READ_SECONDS = 0.2
"""The pause between two reads of a growing log."""
FILE_SECONDS = 10.0
TRANSIENT = (StoreError, TimedOut, NotStored, Unavailable)
"""Errors that are not the trial's: the search loads everything again, or fails."""
_SAVE_LINES = 10_000
_SAVE_ROWS = 50
"""Measurements that are stored at once. With up to 300 of the next page, a commit is still quick: see SqliteDriver."""
_PAGES = 7
"""Pages of lines that are read at a time."""
_REPORTS_AT_ONCE = 50
"""Reports that are added before other tasks get a turn."""
_LONGEST_QUOTE = 200
_SCAN_TRIES = 2
"""How often a scan is tried: a slow one may have waited for other searches. After that, no line is scanned."""

_log = logging.getLogger(__name__)


class TrialMonitor:
    def __init__(
        self,
        search: Search,
        trial: Trial,
        store: Store,
        trial_runner: TrialRunner,
        study: StudyClient,
        notify: Callable[[], None],
        limits: Limits,
    ) -> None:
        """`notify` is called when the trial starts or returns to the queue, has new values, and ends."""
        self.trial = trial
        self.queued = True
        """Whether its job waits in the queue or is being preempted."""
        self.ended_trial: Trial | None = None
        """The trial with its result, once it has ended; it is not in the store yet."""
        self.attempt = 0
        self.unsaved: list[Measurement] = []
        """Measurements that are not in the store."""
        self._search, self._store, self._trial_runner = search, store, trial_runner
        self._study, self._notify = study, notify
        self._limits = limits
        self._metrics = self._new_metrics()
        self._cursor = ""
        self._unsaved_lines = 0
        self._last_line = ""
        self._scan_error = ""
        """Why the regular expressions are no longer applied to its lines."""
        self._reports_by_file = False
        self._log_grew = asyncio.Event()
        self._follower: asyncio.Task[None] | None = None
        self._followed = 0

    @property
    def curve(self) -> Curve:
        return self._metrics.curve

    async def run(self, resumed: bool) -> None:
        """Runs until the trial has ended. Raises TRANSIENT errors. `resumed`: an earlier service followed it before."""
        trial = self.trial
        if resumed:
            known = await self._store.trials.measurements(trial.job, trial.number)
            # The last report counts, and a later attempt may have reported an earlier step.
            self._metrics = self._new_metrics(sorted(known, key=lambda measurement: measurement.at))
            self._cursor = (await self._store.trials.cursor(trial.job, trial.number)).decode()
        try:
            job = await self._until_ended()
            await self._read_to_the_end(job)
        finally:
            if self._follower:
                self._follower.cancel()
        self.attempt = job.attempt
        self.ended_trial = self._outcome(job)
        self._notify()

    def _new_metrics(self, known: Sequence[Measurement] = ()) -> TrialMetrics:
        trial, limits = self.trial, self._limits
        return TrialMetrics(
            self._search, trial.job, trial.number, known, limits.metric_points, limits.metric_names
        )

    async def _until_ended(self) -> Job:
        with self._trial_runner.watch(self.trial.child) as changed:
            pause: float | None = None
            while True:
                changed.clear()
                job = await self._store.job(self.trial.child)
                assert job is not None, "a trial and its job are made together"
                if not job.live:
                    return job
                if self.queued != _is_waiting(job):
                    self.queued = not self.queued
                    self._notify()
                if job.state is State.RUNNING and self._followed != job.attempt:
                    if pause is not None or self._follower:
                        await self._follow(job)
                    pause = (
                        FILE_SECONDS if self._reports_by_file else None if self._follower else QUICK_SECONDS
                    )
                await wait_any(changed, self._log_grew, timeout=pause)
                if self._follower and not changed.is_set():
                    await self._read_new(job)
                    # A program that prints all the time is read at intervals; its end interrupts the pause.
                    await wait_any(changed, timeout=READ_SECONDS)

    async def _follow(self, job: Job) -> None:
        if self._follower:
            self._follower.cancel()
        self._followed = job.attempt
        self._reports_by_file = await self._trial_runner.read_file(job, HYPERTUNE) is not None
        self._follower = asyncio.create_task(self._watch_logs(job))

    async def _watch_logs(self, job: Job) -> None:
        async for _ in self._trial_runner.log_growth(job):
            self._log_grew.set()

    async def _read_new(self, job: Job) -> None:
        """Read and store new measurements; notify if early stopping has to look at them."""
        self._log_grew.clear()
        known = self.curve.count
        try:
            for _ in range(_PAGES):
                if is_all := await self._read(job):
                    break
                await self._save_if_many()
            if is_all:
                self._take_file(await self._read_metrics_file(job))
            else:
                self._log_grew.set()
        except TurnoutError as error:
            self._warn(error)
            return
        if self._metrics.pending() or self._unsaved_lines > _SAVE_LINES:
            await self._save()
        if self._search.stopping and self.curve.count > known:
            self._notify()

    async def _save_if_many(self) -> None:
        if self._metrics.pending() > _SAVE_ROWS or self._unsaved_lines > _SAVE_LINES:
            await self._save()

    async def _save(self) -> None:
        """Store the new measurements and the cursor, and delete some of those that the sample dropped."""
        self._unsaved_lines = 0
        trial, unsaved = self.trial, self._metrics.take_new()
        dropped = self._metrics.take_dropped(_SAVE_ROWS)
        await self._store.trials.measured(trial.job, trial.number, unsaved, self._cursor.encode(), dropped)

    async def _read_to_the_end(self, job: Job) -> None:
        _, written = await asyncio.gather(self._read_all(job), self._read_metrics_file(job))
        self._take_file(written)
        while self._metrics.has_dropped() or self._metrics.pending() > _SAVE_ROWS:
            await self._save()
        self.unsaved = self._metrics.take_new()

    async def _read_all(self, job: Job) -> None:
        try:
            while not await self._read(job):
                # The rest is stored with the end of the trial, in a commit that other trials share.
                await self._save_if_many()
        except TRANSIENT:
            raise
        except TurnoutError as error:
            self._warn(error)

    async def _read_metrics_file(self, job: Job) -> bytes:
        try:
            return await self._trial_runner.read_file(job, HYPERTUNE) or b""
        except TRANSIENT:
            raise
        except TurnoutError as error:
            self._warn(error)
            return b""

    def _warn(self, error: TurnoutError) -> None:
        _log.warning("trial %s of job %s: %s", self.trial.id, self.trial.job, error.message)

    async def _read(self, job: Job) -> bool:
        """Read one page; True if it was the last."""
        lines, cursor, over = await self._trial_runner.lines(job, self._cursor)
        for count, report in enumerate(await self._reports(lines), 1):
            self._metrics.add(report)
            if count % _REPORTS_AT_ONCE == 0:
                await asyncio.sleep(0)
        self._last_line = next((line for _, line in reversed(lines) if line.strip()), self._last_line)
        self._cursor = cursor
        self._unsaved_lines += len(lines)
        return over

    def _take_file(self, data: bytes) -> None:
        for report in read_hypertune(data):
            self._metrics.add(report)

    async def _reports(self, lines: list[tuple[int, str]]) -> list[MetricReport]:
        """Reports by regular expression and by TURNOUT_METRIC, in the order of the lines."""
        found: list[tuple[int, MetricReport]] = []
        for index, texts in await self._scan(lines):
            values = {name: value for name, text in texts.items() if (value := number(text)) is not None}
            if values:
                found.append((index, MetricReport(lines[index][0], values)))
        for index, (at, line) in enumerate(lines):
            if report := read_line(at, line):
                found.append((index, report))
        return [report for _, report in sorted(found, key=lambda pair: pair[0])]

    async def _scan(self, lines: list[tuple[int, str]]) -> list[tuple[int, dict[str, str]]]:
        if self._scan_error or not lines or not any(metric.regex for metric in self._search.metrics):
            return []
        texts = [shortened(line) for _, line in lines]
        for _ in range(_SCAN_TRIES):
            try:
                found = await self._study.scan(texts)
                self._scan_error = ""
                return found
            except Invalid as error:
                self._scan_error = error.message
                self._warn(error)
        return []

    def _outcome(self, job: Job) -> Trial:
        value, metrics = self._metrics.outcome()
        name = self._search.metric.name
        state, message = TrialState.SUCCEEDED, ""
        finite = value is not None and math.isfinite(value)
        if job.state is State.FAILED:
            state, message = TrialState.INFEASIBLE, (job.message or str(job.reason)) + self._last_line_note()
        elif not finite and job.reason is Reason.STOPPED:
            state, message = TrialState.INFEASIBLE, f"{job.message}, before it reported a value of {name}"
        elif not finite:
            state = TrialState.INFEASIBLE
            message = f"its last {name} is {value}" if value is not None else self._why_no_value(name)
        elif job.reason is Reason.STOPPED:
            message = job.message
        return msgspec.structs.replace(
            self.trial,
            state=state,
            value=value if finite and state is TrialState.SUCCEEDED else None,
            metrics=metrics,
            ended=job.ended or job.updated,
            message=message,
        )

    def _last_line_note(self) -> str:
        """For the message, so that a user need not open the log first."""
        text = self._last_line.strip()
        return f"; last line of its log: {text[:_LONGEST_QUOTE]}" if text else ""

    def _why_no_value(self, name: str) -> str:
        regex = self._search.metric.regex
        if self._scan_error:
            return f"it ended without a value of {name}: {self._scan_error}"
        if regex == default_regex(name):
            how = f"no line of its log has the form {name}=0.9"
        elif regex:
            how = f"no line of its log has a number that matches {regex}"
        else:
            how = f"it printed no line such as TURNOUT_METRIC {name}=0.9 and did not use cloudml-hypertune"
        return f"it ended without a value of {name}: {how}"


def _is_waiting(job: Job) -> bool:
    preempted = job.state is State.STOPPING and job.reason is Reason.PREEMPTED
    return preempted or job.state is State.QUEUED
