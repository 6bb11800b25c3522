"""The doing half of control: one turn at a time, commit, then act.

Inputs gather while a commit is under way, so that under load many requests share one trip to the disk. Nothing wakes
it but an input or the one timer that the machine asked for.
"""

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace

from turnout.chaos import point
from turnout.control.explain import Explanation, explain
from turnout.control.hub import Hub
from turnout.control.live import SECOND
from turnout.control.machine import Machine
from turnout.control.turn import (
    Amend,
    Command,
    Conclude,
    Create,
    Delete,
    Finish,
    Forget,
    Input,
    Instruction,
    Remove,
    Save,
    StartAgain,
    StartGang,
    Stop,
    StopGang,
    StopTrial,
    Tick,
    Told,
    Turn,
)
from turnout.engines import Engine, Refused, Unreachable
from turnout.errors import TimedOut, TurnoutError
from turnout.job import (
    Attempt,
    Cause,
    Ended,
    IdMaker,
    Job,
    NewJob,
    Replica,
    ReplicaLog,
    ReplicaName,
    Sampled,
    Size,
    Started,
    Terminal,
    Trial,
)
from turnout.job.resources import Share
from turnout.store import Store, StoreError

log = logging.getLogger(__name__)

_ANSWER_SECONDS = 10
_RETRY_SECONDS = 1
_APART = 0.002
_STARTS_APART = 0.005
_SAMPLES_APART = 1.0

Asked = tuple[Input, asyncio.Future[Job] | None]
"""An input, and for a command who waits for its answer."""


class Control:
    """The only writer of job state."""

    def __init__(
        self,
        store: Store,
        engines: Mapping[str, Engine],
        clusters: dict[str, str],
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.hub = Hub()
        self.ends: dict[str, int] = {}
        self.conduct: Callable[[int], None] = lambda job_id: None
        """Told of each new search, once it is on disk."""
        self._store = store
        self._engines = engines
        self._clusters = clusters
        self._clock = clock
        self._machine = Machine(engines, clusters)
        self._ids = IdMaker()
        self._inputs: list[Asked] = []
        self._wake = asyncio.Event()
        self._last_turn = 0.0
        self._alarm: asyncio.TimerHandle | None = None
        self._due = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Take up what the store holds, and listen to the engines."""
        self._ids = IdMaker(await self._store.last_id())
        self._machine.load(await self._store.live())
        self._tasks = [
            asyncio.create_task(self._listen(name), name=f"reports of {name}") for name in self._engines
        ]
        self._tasks.append(asyncio.create_task(self._run(), name="control"))

    async def close(self) -> None:
        """Jobs go on running; commands that were not answered yet are refused."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        _fail(self._inputs, TimedOut("the service is being stopped; ask again"))
        self.hub.close()

    # Commands. Each returns once it is on disk.

    async def create(self, new: NewJob, trial: Trial | None = None) -> Job:
        return await self._ask(Create(self._ids.next(self._clock()), new, taken=False, trial=trial))

    async def stop(self, job_id: int, by: str) -> Job:
        return await self._ask(Stop(job_id, by))

    async def delete(self, job_id: int, by: str) -> Job:
        return await self._ask(Delete(job_id, by, stored=None))

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
        """What is None stays. Raises WrongState for another priority of a job that has ended."""
        return await self._ask(Amend(job_id, by, None, document, priority, labels, note))

    async def search(self, command: StopTrial | Conclude | Finish) -> Job:
        """About a search, or a trial of it: the search."""
        return await self._ask(command)

    # What the machine knows; reads only.

    def searching(self) -> list[int]:
        """The searches that are live."""
        return list(self._machine.searches)

    def explain(self, job_id: int) -> Explanation | None:
        """None for a job that is not live."""
        live = self._machine.jobs.get(job_id)
        return live and explain(self._machine, live)

    def counts(self) -> dict[str, int]:
        """How many live jobs there are in each state."""
        found: dict[str, int] = {}
        for live in self._machine.jobs.values():
            found[live.job.state] = found.get(live.job.state, 0) + 1
        return found

    def total(self, cluster: str) -> Share:
        """All that its engine's nodes have; nothing until it has told."""
        return self._machine.pools[self._machine.engine_of(cluster)].total

    def mounted(self) -> set[str]:
        """The sources of the mounts of all jobs that have their place. May be asked from any thread."""
        return {mount.source for live in list(self._machine.placed.values()) for mount in live.spec.mounts}

    def running(self) -> bool:
        """Whether commands and reports are being taken."""
        return bool(self._tasks) and not any(task.done() for task in self._tasks)

    def ready(self) -> bool:
        return self._machine.ready >= set(self._engines)

    # What the engines know.

    def runtime(self, cluster: str, name: str) -> str:
        """See Engine.runtime."""
        return self._engine(cluster).runtime(name)

    def log(self, job: Job, attempt: int, replica: ReplicaName) -> ReplicaLog:
        return self._engine(job.cluster).log(Attempt(job.id, attempt), replica)

    def written(self, job: Job, replica: ReplicaName, path: str, most: int) -> bytes:
        """See Engine.written."""
        return self._engine(job.cluster).written(job.current, replica, path, most)

    def follow(self, job: Job) -> AsyncIterator[None]:
        """Yields whenever a log of the job's current attempt may have grown."""
        return self._engine(job.cluster).follow(job.current)

    async def shell(self, job: Job, replica: ReplicaName, size: Size) -> Terminal:
        return await self._engine(job.cluster).shell(job.current, replica, size)

    async def dashboard(self, job: Job, replica: Replica) -> tuple[str, int] | None:
        return await self._engine(job.cluster).dashboard(job.current, replica)

    def _engine(self, cluster: str) -> Engine:
        return self._engines[self._machine.engine_of(cluster)]

    # The loop

    async def _ask(self, command: Command) -> Job:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Job] = loop.create_future()
        self._put(command, future)
        late = loop.call_later(_ANSWER_SECONDS, _too_late, future)
        try:
            return await future
        finally:
            late.cancel()

    def _put(self, one: Input, answer: asyncio.Future[Job] | None = None) -> None:
        self._inputs.append((one, answer))
        self._wake.set()

    async def _listen(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        async for report in self._engines[name].reports():
            self._inputs.append((Told(name, report), None))
            match report:
                # They may share a commit with what follows: nobody waits for a start to be on disk, the engine
                # remembers it too; and where there are many ends there will be more.
                case Started():
                    self._wake_at(loop.time() + _STARTS_APART)
                case Ended():
                    self._wake_at(self._last_turn + _APART)
                case Sampled():
                    self._wake_at(loop.time() + _SAMPLES_APART)
                case _:
                    self._wake.set()

    def _wake_at(self, when: float) -> None:
        loop = asyncio.get_running_loop()
        if when <= loop.time():
            self._wake.set()
        elif when < self._due:
            self._call_off()
            self._due, self._alarm = when, loop.call_at(when, self._wake.set)

    def _call_off(self) -> None:
        if self._alarm:
            self._alarm.cancel()
        self._due, self._alarm = math.inf, None

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            asked, self._inputs = self._inputs, []
            self._call_off()
            self._last_turn = asyncio.get_running_loop().time()
            try:
                await self._turn(asked)
            except StoreError as error:
                log.error("the store did not take a turn: %s", error.message)
                await self._start_over(asked, TimedOut(f"the store could not write: {error.message}"))
            except Exception:  # a fault of ours must not end the loop that all jobs hang on
                log.exception("a turn went wrong; its inputs are taken one by one")
                await self._one_by_one(asked)

    async def _turn(self, asked: list[Asked]) -> None:
        inputs = await self._look_up([one for one, _ in asked])
        turn = self._machine.step(inputs, self._clock())
        if turn.batch:
            point("control.decided")
            await self._store.commit(turn.batch)
            point("control.committed")
        for instruction in turn.instructions:
            await self._carry_out(instruction)
        if turn.batch:
            point("control.acted")
        self._answer(turn, [future for _, future in asked if future])
        for job in turn.ended:
            self.ends[str(job.reason)] = self.ends.get(str(job.reason), 0) + 1
        self.hub.publish(turn.changed)
        for job, new in turn.batch.created:
            if new.spec.search:
                self.conduct(job.id)
        self._set_timer(turn.wake_at)

    async def _one_by_one(self, asked: list[Asked]) -> None:
        """Find the input that cannot be digested, and leave that one out."""
        for one in asked:
            await self._rebuild()
            try:
                await self._turn([one])
            except StoreError as error:
                await self._start_over([one], TimedOut(f"the store could not write: {error.message}"))
            except Exception:  # see above
                log.exception("left out: %r", one[0])
                _fail([one], TurnoutError("something went wrong inside the service; its log has the details"))
                await self._rebuild()

    async def _look_up(self, inputs: list[Input]) -> list[Input]:
        """Add what the machine has to know of the store. Nobody else writes, so it stays true until the commit."""
        handles = [
            (one.new.project, one.new.scope, one.new.handle)
            for one in inputs
            if isinstance(one, Create) and one.new.handle
        ]
        taken = await self._store.taken(handles) if handles else set[tuple[str, str, str]]()
        found: list[Input] = []
        for one in inputs:
            if isinstance(one, Create) and (one.new.project, one.new.scope, one.new.handle) in taken:
                one = replace(one, taken=True)
            elif isinstance(one, Delete | Amend) and one.job_id not in self._machine.jobs:
                one = replace(one, stored=await self._store.job(one.job_id))
            if isinstance(one, Delete):
                one = replace(one, trials=await self._trials(one.job_id))
            found.append(one)
        return found

    async def _trials(self, job_id: int) -> tuple[Job, ...]:
        found = [await self._store.job(trial.child) for trial in await self._store.trials.of(job_id)]
        return tuple(job for job in found if job)

    async def _carry_out(self, instruction: Instruction) -> None:
        engine = self._engines[instruction.engine]
        try:
            match instruction:
                case StartGang(_, launch):
                    await engine.start(launch)
                case StartAgain(_, launch, replica, restarts):
                    await engine.restart(launch, replica, restarts)
                case StopGang(_, attempt, grace, replicas):
                    await engine.stop(attempt, grace, replicas)
                case Save(_, attempt):
                    await engine.save(attempt)
                case Forget(_, attempt, keep_workspace):
                    await engine.forget(attempt, keep_workspace)
                case Remove(_, attempts):
                    await engine.remove(list(attempts))
        except Refused as error:
            self._refuse(instruction, error.message)
        except Unreachable as error:
            # Once it is reachable it tells all it holds, and the machine repeats what is missing.
            log.warning("engine %s: %s", instruction.engine, error.message)
        except Exception as error:  # one job's trouble must not become everybody's
            log.exception("engine %s could not carry out %r", instruction.engine, instruction)
            self._refuse(instruction, f"the engine failed: {error}")

    def _refuse(self, instruction: Instruction, why: str) -> None:
        """What cannot be started has ended; all else that cannot be done is for the log."""
        match instruction:
            case StartGang(engine, launch):
                replicas, restarts = [name for name, _ in launch.replicas()], 0
            case StartAgain(engine, launch, replica, restarts):
                replicas = [replica]
            case _:
                return
        now = self._clock()
        for name in replicas:
            end = Ended(launch.attempt, name, now, Cause.REFUSED, message=why, restarts=restarts)
            self._put(Told(engine, end))

    def _answer(self, turn: Turn, futures: list[asyncio.Future[Job]]) -> None:
        for future, answer in zip(futures, turn.answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, TurnoutError):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    async def _start_over(self, asked: list[Asked], error: TurnoutError) -> None:
        """The commit failed: nothing of the turn has happened. Commands fail; reports are taken again in a second."""
        _fail(asked, error)
        self._inputs[:0] = [(one, None) for one, _ in asked if isinstance(one, Told)]
        await asyncio.sleep(_RETRY_SECONDS)
        await self._rebuild()
        self._wake.set()

    async def _rebuild(self) -> None:
        """The machine as the store has it: whatever a failed turn changed in it is forgotten."""
        machine = Machine(self._engines, self._clusters)
        while True:
            try:
                machine.load(await self._store.live())
                break
            except StoreError as error:
                log.error("the store cannot be read: %s", error.message)
                await asyncio.sleep(_RETRY_SECONDS)
        machine.inherit(self._machine)
        self._machine = machine

    def _set_timer(self, wake_at: int | None) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if wake_at is not None:
            delay = max(0, wake_at - self._clock()) / SECOND
            self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        self._put(Tick())


def _too_late(future: asyncio.Future[Job]) -> None:
    if not future.done():
        future.set_exception(
            TimedOut(f"the store did not answer within {_ANSWER_SECONDS} s; it may still do it")
        )


def _fail(asked: list[Asked], error: TurnoutError) -> None:
    for _, future in asked:
        if future and not future.done():
            future.set_exception(error)
