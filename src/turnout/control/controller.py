"""The half of control that does I/O: it runs one turn of the state machine at a time, commits it, then acts on it.

Inputs that arrive during a commit form the next turn, so that under load many requests share one write to the disk
(group commit). Only an input, or the one timer that the state machine requested, wakes the loop.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

from turnout.chaos import point
from turnout.control.alarm import Alarm
from turnout.control.answers import Answers, not_written
from turnout.control.clocks import steady_ns
from turnout.control.due import is_due
from turnout.control.explain import Explanation, explain, summarize
from turnout.control.live_job import SECOND
from turnout.control.live_jobs import Handle
from turnout.control.measures import Measures
from turnout.control.messages import messages
from turnout.control.notifier import ChangeNotifier
from turnout.control.outbox import Outbox
from turnout.control.overview import Overview, ProjectUsage, overview, usage
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
from turnout.errors import NotStored, TurnoutError
from turnout.job import (
    Attempt,
    AuditLine,
    Cause,
    Ended,
    IdMaker,
    Job,
    LiveSearch,
    NewJob,
    Sampled,
    Started,
    State,
    Synced,
    Trial,
)
from turnout.job.resources import Share
from turnout.projects import Quotas
from turnout.store import LiveRecord, Store, StoreError
from turnout.webhooks import Webhook

log = logging.getLogger(__name__)

_RETRY_SECONDS = 1
_ENDS_APART = 0.002
_STARTS_APART = 0.005
_SAMPLES_APART = 1.0
"""Seconds that these reports may wait to share a commit, see `_listen`."""
_ENOUGH = 100
"""A turn with this many inputs waits for no more."""

PendingInput = tuple[Input, asyncio.Future[Job] | None]
"""An input, and for a command the future that its caller awaits."""


class Controller:
    """The only writer of job state."""

    def __init__(
        self,
        store: Store,
        engines: EngineRegistry,
        clock: Callable[[], int] = time.time_ns,
        steady: Callable[[], int] = steady_ns,
        quotas: Quotas | None = None,
        webhooks: Mapping[str, Webhook] | None = None,
    ) -> None:
        self.changes = ChangeNotifier()
        self._store = store
        self._engines = engines
        self._clock = clock
        self._steady = steady
        self._quotas = quotas
        self._webhooks = webhooks or {}
        self.messages_made: Callable[[set[str]], None] = lambda hooks: None
        """Called with the webhooks for which there are new messages, once these are on disk."""
        self._machine = StateMachine(engines.traits, engines.name, quotas)
        self.measures = Measures(lambda: self._machine, engines.engines)
        self._ids = IdMaker()
        self._inputs: list[PendingInput] = []
        self._answers = Answers()
        self._under_way: list[PendingInput] = []
        """The inputs of the current turn."""
        self._stale = False
        """The state machine may differ from the store and must be rebuilt."""
        self._unsure: list[Turn] = []
        """Turns that may be on disk although their commit failed."""
        self._wake = Alarm()
        self._last_turn = 0.0
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

    async def create(
        self, new: NewJob, trial: Trial | None = None, owner: str = "", audit: AuditLine | None = None
    ) -> Job:
        """`audit`, here and below: what the audit trail says, in the commit of the change."""
        self._store.check_not_removed()
        job_id = self._ids.next(self._clock())
        return await self._execute(Create(job_id, new, taken=False, trial=trial, owner=owner, audit=audit))

    async def stop(self, job_id: int, by: str, audit: AuditLine | None = None) -> Job:
        return await self._execute(Stop(job_id, by, audit))

    async def delete(self, job_id: int, by: str, audit: AuditLine | None = None) -> Job:
        return await self._execute(Delete(job_id, by, stored=None, audit=audit))

    async def amend(
        self,
        job_id: int,
        by: str,
        *,
        document: bytes | None = None,
        priority: int | None = None,
        labels: dict[str, str] | None = None,
        note: str = "",
        audit: AuditLine | None = None,
    ) -> Job:
        """Changes the fields that are not None. Raises WrongState for a new priority of a job that has ended."""
        return await self._execute(Amend(job_id, by, None, document, priority, labels, note, audit))

    async def search(self, command: StopTrial | FinishTrial | FinishSearch) -> Job:
        """Runs a command about a search or one of its trials, and returns the search."""
        return await self._execute(command)

    # Reads of the state machine.

    def live_searches(self) -> list[int]:
        """The ids of live searches."""
        return list(self._machine.searches)

    def live_search(self, job_id: int) -> LiveSearch | None:
        """None if it has ended, or if the job is not a search."""
        live = self._machine.searches.get(job_id)
        if live is None:
            return None
        job, limit = live.job, live.spec.policy.time_limit
        kind = (job.project, job.cluster, job.priority, live.parts, limit)
        return LiveSearch(kind, has_trials=bool(live.trials) or job.state is not State.QUEUED)

    def explain(self, job_id: int) -> Explanation | None:
        """Why the job is in its state; None if it is not live."""
        live = self._machine.jobs.get(job_id)
        return live and explain(self._machine, live)

    def waits_for(self, job_id: int) -> str:
        """What the job waits for, in a line; empty if it does not wait."""
        live = self._machine.jobs.get(job_id)
        return summarize(self._machine, live) if live else ""

    def overviews(self, project: str | None) -> list[Overview]:
        """The queue of each engine, with the jobs of this project or, if it is None, of all."""
        return [overview(self._machine, engine, project) for engine in self._engines.engines]

    def usage(self, project: str) -> ProjectUsage:
        return usage(self._machine, project)

    def total(self, cluster: str) -> Share:
        """The capacity of the cluster's nodes; zero until its engine has reported them."""
        return self._machine.pools[self._machine.engine_of(cluster)].total

    def project_of(self, attempt: Attempt) -> str:
        """The project of a live attempt; empty if it has ended or never was."""
        return live.job.project if (live := self._machine.live(attempt)) else ""

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

    @property
    def engines_synced(self) -> bool:
        """Whether every engine has reported what it runs."""
        return all(name in self._machine.ready for name in self._engines.engines)

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
        future = self._answers.new()
        self._put(command, future)
        return await future

    def _put(self, input_: Input, answer: asyncio.Future[Job] | None = None) -> None:
        self._inputs.append((input_, answer))
        self._wake.ring()

    async def _listen(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        async for report in self._engines.engines[name].reports():
            self._inputs.append((EngineReport(name, report), None))
            match report:
                # These reports wait a moment to share a commit with later ones: the engine repeats a lost start, and
                # many replicas often end at the same time.
                case Started():
                    self._wake.ring_at(loop.time() + _STARTS_APART)
                case Ended():
                    self._wake.ring_at(self._last_turn + _ENDS_APART)
                case Sampled():
                    self._wake.ring_at(loop.time() + _SAMPLES_APART)
                case _:
                    self._wake.ring()

    async def _run(self) -> None:
        """Call it again if it raises: it first puts back the inputs of the turn that failed."""
        if self._under_way:
            self._put_back(
                self._under_way, TurnoutError("the service had an internal error; send the request again")
            )
        if self._stale:
            await self._rebuild()
            self._wake.ring()
        while True:
            await self._wake.wait()
            await self._gather()
            self._wake.reset()
            batch, self._inputs = self._inputs, []
            self._under_way = batch
            self._last_turn = asyncio.get_running_loop().time()
            try:
                await self._turn(batch)
            except StoreError as error:
                log.error("the store rejected a turn: %s", error.message)
                await self._start_over(batch, not_written(error))
            except Exception:  # a bug must not end the loop that every job depends on
                log.exception("a turn failed; its inputs are retried one by one")
                await self._one_by_one(batch)
            self._under_way = []

    async def _gather(self) -> None:
        """Lets requests that have already arrived join the turn, so that they share its write to the disk."""
        count = 0
        while count < len(self._inputs) < _ENOUGH:
            count = len(self._inputs)
            # In one round of the loop a request is read, in the next one its handler runs.
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    async def _turn(self, batch: list[PendingInput]) -> None:
        inputs = await self._look_up([input_ for input_, _ in batch])
        turn = self._machine.step(inputs, self._clock(), self._steady())
        if self._webhooks:
            turn.batch.deliveries.extend(messages(self._webhooks, turn.transitions, self._clock()))
        if turn.batch:
            point("control.decided")
            self._unsure.append(turn)
            await self._store.commit(turn.batch)
            self._unsure.pop()
            point("control.committed")
        self._hand_over(turn, inputs)
        self._answer(turn, [future for _, future in batch if future])
        self.measures.observe(turn)
        if turn.batch.deliveries:
            self.messages_made({delivery.hook for delivery in turn.batch.deliveries})
        self.changes.publish(turn.changed)
        self._set_timer(turn.wake_at)

    async def _one_by_one(self, batch: list[PendingInput]) -> None:
        """Retries each input alone and drops the one that fails again."""
        for pending in batch:
            await self._rebuild()
            try:
                await self._turn([pending])
            except StoreError as error:
                await self._start_over([pending], not_written(error))
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
        self._wake.ring()

    def _put_back(self, batch: list[PendingInput], error: TurnoutError) -> None:
        _fail(batch, error)
        self._inputs[:0] = [
            (input_, None) for input_, _ in batch if isinstance(input_, EngineReport | BrokenJob)
        ]
        self._under_way, self._stale = [], True

    async def _rebuild(self) -> None:
        """Rebuilds the state machine from the store, without the changes of the failed turn."""
        machine = StateMachine(self._engines.traits, self._engines.name, self._quotas)
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


def _fail(batch: list[PendingInput], error: TurnoutError) -> None:
    for _, future in batch:
        if future and not future.done():
            future.set_exception(error)
