"""The half of control that does I/O: it runs one turn of the state machine at a time, commits it, then acts on it.

Inputs that arrive during a commit form the next turn, so that under load many requests share one write to the disk
(group commit). Only an input, or the one timer that the state machine requested, wakes the loop.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from turnout.chaos import point
from turnout.control.due import is_due
from turnout.control.explain import Explanation, explain
from turnout.control.live_job import SECOND
from turnout.control.live_jobs import Handle
from turnout.control.notifier import ChangeNotifier
from turnout.control.outbox import Outbox
from turnout.control.state_machine import StateMachine
from turnout.control.turn import (
    Amend,
    BrokenJob,
    Command,
    Create,
    Delete,
    EngineReport,
    FinishSearch,
    FinishTrial,
    Input,
    Instruction,
    RestartReplica,
    StartGang,
    Stop,
    StopTrial,
    Tick,
    Turn,
)
from turnout.engines import NO_ENGINE, EngineRegistry
from turnout.errors import NotStored, TimedOut, TurnoutError
from turnout.job import (
    Cause,
    Ended,
    IdMaker,
    Job,
    NewJob,
    Sampled,
    Started,
    Synced,
    Trial,
)
from turnout.job.resources import Share
from turnout.store import LiveRecord, Store, StoreError

log = logging.getLogger(__name__)

_ANSWER_SECONDS = 10
_RETRY_SECONDS = 1
_ENDS_APART = 0.002
_STARTS_APART = 0.005
_SAMPLES_APART = 1.0
"""Seconds that these reports may wait to share a commit, see `_listen`."""

PendingInput = tuple[Input, asyncio.Future[Job] | None]
"""An input, and for a command the future that its caller awaits."""


def steady_ns() -> int:
    """Nanoseconds since boot, including suspend. Setting the wall clock does not move it."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Controller:
    """The only writer of job state."""

    def __init__(
        self,
        store: Store,
        engines: EngineRegistry,
        clock: Callable[[], int] = time.time_ns,
        steady: Callable[[], int] = steady_ns,
    ) -> None:
        self.changes = ChangeNotifier()
        self.ends: dict[str, int] = {}
        """How many jobs have ended for each reason."""
        self.on_new_search: Callable[[int], None] = lambda job_id: None
        """Called with the id of each new search once it is on disk."""
        self._store = store
        self._engines = engines
        self._clock = clock
        self._steady = steady
        self._machine = StateMachine(engines.traits, engines.name)
        self._ids = IdMaker()
        self._inputs: list[PendingInput] = []
        self._under_way: list[PendingInput] = []
        """The inputs of the current turn."""
        self._stale = False
        """The state machine may differ from the store and must be rebuilt."""
        self._unsure: list[Turn] = []
        """Turns that may be on disk although their commit failed."""
        self._wake = asyncio.Event()
        self._last_turn = 0.0
        self._alarm: asyncio.TimerHandle | None = None
        """Wakes the loop for reports that wait to share a commit."""
        self._due = math.inf
        """When the alarm rings, by the loop's clock."""
        self._timer: asyncio.TimerHandle | None = None
        """Wakes the loop at the time that the last turn requested."""
        self._outboxes = {
            name: Outbox(name, engine, self._refuse) for name, engine in engines.engines.items()
        }
        self._failing: set[str] = set()
        """The names of the tasks that have failed and will be started again."""
        self._tasks: list[asyncio.Task[None]] = []
        self._sending: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Loads the live jobs from the store and starts to read the engines' reports."""
        self._ids = IdMaker(await self._store.last_id())
        stored = await self._store.live()
        self._machine.load(stored, self._clock(), self._steady())
        self._remind_engines(stored)
        for job_id, why in self._machine.broken.items():
            self._put(BrokenJob(job_id, why))
        self._tasks = [
            self._start_task(f"reports of {name}", partial(self._listen, name))
            for name in self._engines.engines
        ]
        self._tasks.append(self._start_task("control", self._run))
        self._sending = [
            self._start_task(f"outbox of {name}", outbox.run) for name, outbox in self._outboxes.items()
        ]

    def _remind_engines(self, stored: list[LiveRecord]) -> None:
        for name, engine in self._engines.engines.items():
            engine.remember(
                {
                    record.job.current: record.submission.engine_id
                    for record in stored
                    if record.submission and self._machine.engine_for(record.job.id) == name
                }
            )

    async def close(self) -> None:
        """Running jobs go on. Commands without an answer fail with NotStored."""
        await _cancel(self._tasks)
        await asyncio.gather(*(outbox.drained() for outbox in self._outboxes.values()))
        await _cancel(self._sending)
        _fail(self._inputs, NotStored("the service is stopping; try again"))
        self.changes.close()

    # Commands. Each returns once the change is on disk.

    async def create(self, new: NewJob, trial: Trial | None = None) -> Job:
        self._store.check_not_removed()
        return await self._execute(Create(self._ids.next(self._clock()), new, taken=False, trial=trial))

    async def stop(self, job_id: int, by: str) -> Job:
        return await self._execute(Stop(job_id, by))

    async def delete(self, job_id: int, by: str) -> Job:
        return await self._execute(Delete(job_id, by, stored=None))

    async def amend(
        self,
        job_id: int,
        by: str,
        *,
        document: bytes | None = None,
        priority: int | None = None,
        labels: dict[str, str] | None = None,
        note: str = "",
    ) -> Job:
        """Changes the fields that are not None. Raises WrongState for a new priority of a job that has ended."""
        return await self._execute(Amend(job_id, by, None, document, priority, labels, note))

    async def search(self, command: StopTrial | FinishTrial | FinishSearch) -> Job:
        """Runs a command about a search or one of its trials, and returns the search."""
        return await self._execute(command)

    # Reads of the state machine.

    def live_searches(self) -> list[int]:
        """The ids of live searches."""
        return list(self._machine.searches)

    def explain(self, job_id: int) -> Explanation | None:
        """Why the job is in its state; None if it is not live."""
        live = self._machine.jobs.get(job_id)
        return live and explain(self._machine, live)

    def counts(self) -> dict[str, int]:
        """The number of live jobs in each state."""
        found: dict[str, int] = {}
        for live in self._machine.jobs.values():
            found[live.job.state] = found.get(live.job.state, 0) + 1
        return found

    def total(self, cluster: str) -> Share:
        """The capacity of the cluster's nodes; zero until its engine has reported them."""
        return self._machine.pools[self._machine.engine_of(cluster)].total

    def mounted(self) -> set[str]:
        """The mount sources of all placed jobs. Safe to call from any thread."""
        return {mount.source for live in list(self._machine.placed.values()) for mount in live.spec.mounts}

    def running(self) -> bool:
        """Whether commands, reports and instructions are being processed."""
        alive = not any(task.done() for task in (*self._tasks, *self._sending))
        return bool(self._tasks) and alive and not self._failing

    def engine_trouble(self, cluster: str) -> str:
        """Why the cluster's engine starts no jobs at the moment; empty if it does."""
        name = self._engines.name(cluster)
        if name not in self._machine.ready:
            return "its engine has not reported yet what it runs"
        return self._outboxes[name].unreachable or self._engines.engines[name].trouble()

    # The loop

    def _start_task(self, name: str, run: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        return asyncio.create_task(self._run_again_after_failure(name, run), name=name)

    async def _run_again_after_failure(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Every job depends on this task, so it is started again after a pause if it ends."""
        while True:
            try:
                await run()
                log.error("the task %r has ended; it is started again", name)
            except Exception:  # the task must go on whatever happened
                log.exception("the task %r has failed; it is started again", name)
            self._failing.add(name)
            await asyncio.sleep(_RETRY_SECONDS)
            self._failing.discard(name)

    async def _execute(self, command: Command) -> Job:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Job] = loop.create_future()
        self._put(command, future)
        timer = loop.call_later(_ANSWER_SECONDS, _time_out, future)
        try:
            return await future
        finally:
            timer.cancel()

    def _put(self, input_: Input, answer: asyncio.Future[Job] | None = None) -> None:
        self._inputs.append((input_, answer))
        self._wake.set()

    async def _listen(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        async for report in self._engines.engines[name].reports():
            self._inputs.append((EngineReport(name, report), None))
            match report:
                # These reports wait a moment to share a commit with later ones: the engine repeats a lost start, and
                # many replicas often end at the same time.
                case Started():
                    self._wake_at(loop.time() + _STARTS_APART)
                case Ended():
                    self._wake_at(self._last_turn + _ENDS_APART)
                case Sampled():
                    self._wake_at(loop.time() + _SAMPLES_APART)
                case _:
                    self._wake.set()

    def _wake_at(self, when: float) -> None:
        loop = asyncio.get_running_loop()
        if when <= loop.time():
            self._wake.set()
        elif when < self._due:
            self._cancel_alarm()
            self._due, self._alarm = when, loop.call_at(when, self._wake.set)

    def _cancel_alarm(self) -> None:
        if self._alarm:
            self._alarm.cancel()
        self._due, self._alarm = math.inf, None

    async def _run(self) -> None:
        """Call it again if it raises: it first puts back the inputs of the turn that failed."""
        if self._under_way:
            self._put_back(
                self._under_way, TurnoutError("the service had an internal error; send the request again")
            )
        if self._stale:
            await self._rebuild()
            self._wake.set()
        while True:
            await self._wake.wait()
            self._wake.clear()
            batch, self._inputs = self._inputs, []
            self._under_way = batch
            self._cancel_alarm()
            self._last_turn = asyncio.get_running_loop().time()
            try:
                await self._turn(batch)
            except StoreError as error:
                log.error("the store rejected a turn: %s", error.message)
                await self._start_over(batch, _not_written(error))
            except Exception:  # a bug must not end the loop that every job depends on
                log.exception("a turn failed; its inputs are retried one by one")
                await self._one_by_one(batch)
            self._under_way = []

    async def _turn(self, batch: list[PendingInput]) -> None:
        inputs = await self._look_up([input_ for input_, _ in batch])
        turn = self._machine.step(inputs, self._clock(), self._steady())
        if turn.batch:
            point("control.decided")
            self._unsure.append(turn)
            await self._store.commit(turn.batch)
            self._unsure.pop()
            point("control.committed")
        self._hand_over(turn, inputs)
        self._answer(turn, [future for _, future in batch if future])
        for job in turn.ended:
            self.ends[str(job.reason)] = self.ends.get(str(job.reason), 0) + 1
        self.changes.publish(turn.changed)
        for job, new in turn.batch.created:
            if new.spec.search:
                self.on_new_search(job.id)
        self._set_timer(turn.wake_at)

    async def _one_by_one(self, batch: list[PendingInput]) -> None:
        """Retries each input alone and drops the one that fails again."""
        for pending in batch:
            await self._rebuild()
            try:
                await self._turn([pending])
            except StoreError as error:
                await self._start_over([pending], _not_written(error))
            except Exception:  # as in `_run`
                log.exception("this input is dropped: %r", pending[0])
                _fail([pending], TurnoutError("the service had an internal error; its log has the details"))
                await self._rebuild()
                await self._give_up(pending[0])

    async def _give_up(self, input_: Input) -> None:
        """Ends the job of a report that cannot be processed: its state is no longer known."""
        attempt = getattr(input_.report, "attempt", None) if isinstance(input_, EngineReport) else None
        if attempt is None or self._machine.live(attempt) is None:
            return
        try:
            await self._turn(
                [(BrokenJob(attempt.job, "a report of its engine could not be processed"), None)]
            )
        except Exception:  # as above
            log.exception("job %d cannot be ended", attempt.job)
            await self._rebuild()

    async def _look_up(self, inputs: list[Input]) -> list[Input]:
        """Adds the stored facts that the state machine needs. Only this loop writes, so they hold until the commit."""
        handles = [
            _handle(command) for command in inputs if isinstance(command, Create) and command.new.handle
        ]
        taken = await self._store.taken(handles) if handles else set[Handle]()
        found: list[Input] = []
        for input_ in inputs:
            if isinstance(input_, Create) and _handle(input_) in taken:
                input_ = replace(input_, taken=True)
            elif isinstance(input_, Delete | Amend) and input_.job_id not in self._machine.jobs:
                input_ = replace(input_, stored=await self._store.job(input_.job_id))
            if isinstance(input_, Delete):
                input_ = replace(input_, trials=await self._trials(input_.job_id))
            found.append(input_)
        return found

    async def _trials(self, job_id: int) -> tuple[Job, ...]:
        found = [await self._store.job(trial.child) for trial in await self._store.trials.of(job_id)]
        return tuple(job for job in found if job)

    def _hand_over(self, turn: Turn, inputs: list[Input]) -> None:
        """Puts the instructions into their engines' outboxes. Results come back as reports."""
        for input_ in inputs:
            if isinstance(input_, EngineReport) and isinstance(input_.report, Synced):
                self._outboxes[input_.engine].drop_outdated()
        for instruction in turn.instructions:
            if instruction.engine != NO_ENGINE:
                self._outboxes[instruction.engine].put(instruction)

    def _refuse(self, instruction: Instruction, why: str) -> None:
        """Ends the replicas that an engine refuses to start. Other refused instructions are only logged."""
        match instruction:
            case StartGang(engine, launch):
                replicas, restarts = [name for name, _ in launch.replicas()], 0
            case RestartReplica(engine, launch, replica, restarts):
                replicas = [replica]
            case _:
                return
        now = self._clock()
        for name in replicas:
            end = Ended(launch.attempt, name, now, Cause.REFUSED, message=why, restarts=restarts)
            self._put(EngineReport(engine, end))

    def _answer(self, turn: Turn, futures: list[asyncio.Future[Job]]) -> None:
        for future, answer in zip(futures, turn.answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, TurnoutError):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    async def _start_over(self, batch: list[PendingInput], error: TurnoutError) -> None:
        """After a failed commit nothing has happened: the turn's commands fail, its reports are retried in a second."""
        self._put_back(batch, error)
        await asyncio.sleep(_RETRY_SECONDS)
        await self._rebuild()
        self._wake.set()

    def _put_back(self, batch: list[PendingInput], error: TurnoutError) -> None:
        _fail(batch, error)
        self._inputs[:0] = [
            (input_, None) for input_, _ in batch if isinstance(input_, EngineReport | BrokenJob)
        ]
        self._under_way, self._stale = [], True

    async def _rebuild(self) -> None:
        """Rebuilds the state machine from the store, without the changes of the failed turn."""
        machine = StateMachine(self._engines.traits, self._engines.name)
        while True:
            try:
                machine.load(await self._store.live(), self._clock(), self._steady())
                break
            except StoreError as error:
                log.error("the store cannot be read: %s", error.message)
                await asyncio.sleep(_RETRY_SECONDS)
        machine.inherit(self._machine)
        self._machine, self._stale = machine, False
        unsure, self._unsure = self._unsure, []
        for turn in unsure:
            self._finish(turn)

    def _finish(self, turn: Turn) -> None:
        """Does what is left to do for those parts of a turn that are on disk although its commit failed."""
        for instruction in turn.instructions:
            if instruction.engine != NO_ENGINE and is_due(self._machine, instruction):
                self._outboxes[instruction.engine].put(instruction)
        self.changes.publish(turn.changed)
        for job, _ in turn.batch.created:
            if job.id in self._machine.searches:
                self.on_new_search(job.id)

    def _set_timer(self, wake_at: int | None) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if wake_at is not None:
            delay = max(0, wake_at - self._steady()) / SECOND
            self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        self._put(Tick())


def _handle(command: Create) -> Handle:
    return command.new.project, command.new.scope, command.new.handle


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _time_out(future: asyncio.Future[Job]) -> None:
    if not future.done():
        future.set_exception(
            TimedOut(f"the store did not answer within {_ANSWER_SECONDS} s; the change may still happen")
        )


def _not_written(error: StoreError) -> TurnoutError:
    kind = TimedOut if isinstance(error, TimedOut) else NotStored
    return kind(f"the store could not write: {error.message}")


def _fail(batch: list[PendingInput], error: TurnoutError) -> None:
    for _, future in batch:
        if future and not future.done():
            future.set_exception(error)
