"""The doing half of control: one turn at a time, commit, then act.

Inputs gather while a commit is under way, so that under load many requests share one trip to the disk. Nothing wakes
it but an input or the one timer that the machine asked for.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress

from turnout.chaos import point
from turnout.control.explain import Explanation, explain
from turnout.control.hub import Hub
from turnout.control.machine import SECOND, Machine
from turnout.control.turn import (
    Command,
    Create,
    Delete,
    Forget,
    Input,
    Instruction,
    Remove,
    StartGang,
    Stop,
    StopGang,
    Tick,
    Told,
    Turn,
)
from turnout.engines import Engine, Refused, Unreachable
from turnout.errors import TimedOut, TurnoutError
from turnout.job import Attempt, Cause, Ended, IdMaker, Job, Launch, NewJob, ReplicaLog, ReplicaName, Started
from turnout.store import Store, StoreError

log = logging.getLogger(__name__)

_ANSWER_SECONDS = 10
_RETRY_SECONDS = 1
_STARTED_SECONDS = 0.002


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
        self._store = store
        self._engines = engines
        self._clusters = clusters
        self._clock = clock
        self._machine = Machine(engines, clusters)
        self._ids = IdMaker()
        self._inputs: list[Input] = []
        self._waiting: list[asyncio.Future[Job]] = []
        self._wake = asyncio.Event()
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
        for future in self._waiting:
            if not future.done():
                future.set_exception(TimedOut("the service is being stopped; ask again"))
        self.hub.close()

    # Commands. Each returns once it is on disk.

    async def create(self, new: NewJob) -> Job:
        return await self._ask(Create(self._ids.next(self._clock()), new, taken=False))

    async def stop(self, job_id: int, by: str) -> Job:
        return await self._ask(Stop(job_id, by))

    async def delete(self, job_id: int, by: str) -> Job:
        return await self._ask(Delete(job_id, by, stored=None))

    # What the machine knows; reads only.

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

    def ready(self) -> bool:
        return self._machine.ready >= set(self._engines)

    # What the engines know.

    def runtime(self, cluster: str, name: str) -> str:
        """See Engine.runtime."""
        return self._engine(cluster).runtime(name)

    def log(self, job: Job, attempt: int, replica: ReplicaName) -> ReplicaLog:
        return self._engine(job.cluster).log(Attempt(job.id, attempt), replica)

    def follow(self, job: Job) -> AsyncIterator[None]:
        """Yields whenever a log of the job's current attempt may have grown."""
        return self._engine(job.cluster).follow(job.current)

    def _engine(self, cluster: str) -> Engine:
        return self._engines[self._machine.engine_of(cluster)]

    # The loop

    async def _ask(self, command: Command) -> Job:
        future: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
        self._inputs.append(command)
        self._waiting.append(future)
        self._wake.set()
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await future
        except TimeoutError:
            raise TimedOut(
                f"the store did not answer within {_ANSWER_SECONDS} s; it may still do it"
            ) from None

    async def _listen(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        async for report in self._engines[name].reports():
            self._inputs.append(Told(name, report))
            if isinstance(report, Started):
                # Nobody waits for it on disk: the engine remembers it too. So it may share a commit with what follows.
                loop.call_later(_STARTED_SECONDS, self._wake.set)
            else:
                self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            inputs, self._inputs = self._inputs, []
            waiting, self._waiting = self._waiting, []
            try:
                await self._turn(inputs, waiting)
            except StoreError as error:
                await self._start_over(inputs, waiting, error)

    async def _turn(self, inputs: list[Input], waiting: list[asyncio.Future[Job]]) -> None:
        inputs = await self._look_up(inputs)
        turn = self._machine.step(inputs, self._clock())
        if turn.batch:
            point("control.decided")
            await self._store.commit(turn.batch)
            point("control.committed")
        for instruction in turn.instructions:
            await self._carry_out(instruction)
        if turn.batch:
            point("control.acted")
        self._answer(turn, waiting)
        for job in turn.ended:
            self.ends[str(job.reason)] = self.ends.get(str(job.reason), 0) + 1
        self.hub.publish(turn.changed)
        self._set_timer(turn.wake_at)

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
                one = Create(one.job_id, one.new, taken=True)
            elif isinstance(one, Delete) and one.job_id not in self._machine.jobs:
                one = Delete(one.job_id, one.by, await self._store.job(one.job_id))
            found.append(one)
        return found

    async def _carry_out(self, instruction: Instruction) -> None:
        engine = self._engines[instruction.engine]
        try:
            match instruction:
                case StartGang(_, launch):
                    await engine.start(launch)
                case StopGang(_, attempt, grace, replicas):
                    await engine.stop(attempt, grace, replicas)
                case Forget(_, attempt, keep_workspace):
                    await engine.forget(attempt, keep_workspace)
                case Remove(_, attempts):
                    await engine.remove(list(attempts))
        except Refused as error:
            if isinstance(instruction, StartGang):
                self._refuse(instruction.engine, instruction.launch, error)
        except Unreachable as error:
            # Once it is reachable it tells all it holds, and the machine repeats what is missing.
            log.warning("engine %s: %s", instruction.engine, error.message)

    def _refuse(self, engine: str, launch: Launch, error: TurnoutError) -> None:
        now = self._clock()
        for replica, _ in launch.replicas():
            end = Ended(launch.attempt, replica, now, Cause.REFUSED, message=error.message)
            self._inputs.append(Told(engine, end))
        self._wake.set()

    def _answer(self, turn: Turn, waiting: list[asyncio.Future[Job]]) -> None:
        for future, answer in zip(waiting, turn.answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, TurnoutError):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    async def _start_over(
        self, inputs: list[Input], waiting: list[asyncio.Future[Job]], error: StoreError
    ) -> None:
        """The commit failed: nothing of the turn has happened. Commands fail; reports are taken again."""
        log.error("the store did not take a turn: %s", error.message)
        for future in waiting:
            if not future.done():
                future.set_exception(TimedOut(f"the store could not write: {error.message}"))
        self._inputs[:0] = [one for one in inputs if isinstance(one, Told)]
        machine = Machine(self._engines, self._clusters)
        while True:
            with suppress(StoreError):
                machine.load(await self._store.live())
                break
            await asyncio.sleep(_RETRY_SECONDS)
        machine.inherit(self._machine)
        self._machine = machine
        asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._wake.set)

    def _set_timer(self, wake_at: int | None) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if wake_at is not None:
            delay = max(0, wake_at - self._clock()) / SECOND
            self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        self._inputs.append(Tick())
        self._wake.set()
