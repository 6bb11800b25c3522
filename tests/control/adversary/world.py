"""The real controller between users, an adversarial store and adversarial engines, and what must always be true."""

import asyncio
import logging
import traceback
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random

from tests.control.adversary.engine import Adversary, Failed
from tests.control.adversary.records import Records
from tests.control.adversary.virtual_time import VirtualLoop
from turnout.control import Controller
from turnout.control.live_job import SECOND
from turnout.control.node_pool import NOTHING, NodePool
from turnout.control.verdict import judge
from turnout.engines import EngineRegistry, Traits
from turnout.errors import NotStored, TimedOut, TurnoutError
from turnout.job import (
    Attempt,
    Cause,
    Ended,
    EventKind,
    Hung,
    Job,
    Node,
    Reason,
    ReplicaName,
    Report,
    Saved,
    State,
    Synced,
)
from turnout.job.resources import GIB

ROUNDS = 200
"""A job ends within as many turns once the engine behaves again."""
NODES = (Node("a", 4000, 16 * GIB, 2), Node("b", 2000, 16 * GIB, 0))


class Problems(logging.Handler):
    """The controller logs an exception only if it has a bug."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and not isinstance(record.exc_info[1], Failed):
            where = traceback.extract_tb(record.exc_info[2])[-1]
            self.found.append(f"{record.msg}: {record.exc_info[1]!r} in `{where.line}`")


class World:
    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.told: list[str] = []
        self.problems = Problems()
        self.wall, self.steady = 10**9 * SECOND, 1_000 * SECOND
        self.records = Records()
        self.engines = {
            "nodes": Adversary("nodes", Traits("local"), NODES, self.clock),
            "queue": Adversary("queue", Traits("slurm", pending=2), NODES, self.clock),
        }
        for engine in self.engines.values():
            engine.on_call = self.tell
            engine.on_delivery = partial(self.delivered, engine)
        self.decisive: dict[Attempt, list[Report]] = defaultdict(list)
        """What was delivered that may decide an attempt."""
        self.announced: list[tuple[Adversary, frozenset[Attempt]]] = []
        """What engines said that they hold, since the controller was last idle."""
        self.names = 0
        self.users: set[asyncio.Task[None]] = set()
        self.control: Controller | None = None

    def clock(self) -> int:
        return self.wall + int(self.loop.time() * SECOND)

    def steady_clock(self) -> int:
        return self.steady + int(self.loop.time() * SECOND)

    def tell(self, text: str) -> None:
        self.told.append(f"{self.loop.time():9.3f} {text}")

    # The service.

    async def boot(self) -> None:
        registry = EngineRegistry(self.engines, {name: name for name in self.engines})  # type: ignore[arg-type]
        self.control = Controller(self.records, registry, self.clock, self.steady_clock)  # type: ignore[arg-type]
        await self.control.start()

    async def kill(self) -> None:
        """Everything in memory is gone. What the engines were in the middle of is done or not."""
        control, self.control = self.control, None
        if control is None:
            return
        tasks = [*control._tasks, *control._sending, *self.users]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        control._set_timer(None)
        control._wake.reset()
        self.users.clear()
        self.records.faults.clear()
        self.records.dead = False
        self.announced.clear()
        for attempt in list(self.decisive):
            job = self.records.jobs.get(attempt.job)
            if job and job.live and job.reason is None:
                del self.decisive[attempt]  # nobody knows them any more

    def call(self, what: str, command: Awaitable[Job], allowed: Callable[[Job], bool]) -> None:
        """A user calls. An answer other than an error is true."""

        async def ask() -> None:
            try:
                job = await command
            except TurnoutError as error:
                unknown = isinstance(error, NotStored | TimedOut)
                self.tell(f"{what}: {error.message}{' (it may have happened)' if unknown else ''}")
            else:
                self.tell(f"{what}: job {job.id} is {job.state}")
                assert allowed(self.records.jobs[job.id]), f"{what} was answered, but it is not on disk"

        task = asyncio.get_running_loop().create_task(ask())
        self.users.add(task)
        task.add_done_callback(self.answered)

    def answered(self, task: asyncio.Task[None]) -> None:
        self.users.discard(task)
        error = None if task.cancelled() else task.exception()
        if error:
            self.problems.found.append(str(error))

    def delivered(self, engine: Adversary, report: Report) -> None:
        self.tell(f"report {report}")
        match report:
            case Ended() | Hung():
                self.decisive[report.attempt].append(report)
            case Saved() if report.trouble:
                self.decisive[report.attempt].append(report)
            case Synced(held):
                self.announced.append((engine, held))
                # Whatever it does not name may count as lost or stopped.
                for job in self.records.jobs.values():
                    if job.live and job.attempt and job.current not in held:
                        self.decisive[job.current].append(report)
            case _:
                pass

    # What must be true at every step.

    async def check(self) -> None:
        if self.records.dead:
            self.tell("killed while it waits for the store")
            await self.kill()
            await self.boot()
            return
        assert not self.problems.found, self.problems.found[0]
        control = self.control
        assert control is not None
        if control._under_way or control._stale:
            return
        if not control._inputs and all(engine.inbox.empty() for engine in self.engines.values()):
            for engine, held in self.announced:
                engine.heard_of(held)
            self.announced.clear()
        machine, stored = control._machine, {job.id: job for job in self.records.jobs.values() if job.live}
        assert {job_id: live.job for job_id, live in machine.jobs.items()} == stored
        queued = {job.id for job in stored.values() if job.state is State.QUEUED}
        assert machine.placed.keys() == stored.keys() - queued
        assert machine.finishing.keys() <= machine.placed.keys()
        assert set(machine.handles.values()) <= stored.keys()
        for name, queue in machine.queues.items():
            assert set(queue._entries) == {one for one in queued if machine.jobs[one].engine == name}
            assert queue._until.keys() <= queue._entries.keys()
        for name in self.engines:
            check_pool(machine.pools[name], [live.placement for live in machine.placed.on(name)])

    # The end.

    async def calm_down(self) -> None:
        """Everything behaves again. Only an engine that broke its promises has to connect anew."""
        self.tell("everything behaves again")
        self.records.faults.clear()
        for engine in self.engines.values():
            engine.moods.clear()
            engine.gate.set()
            grows, engine.nodes = engine.nodes != NODES, NODES
            if engine.lost:
                engine.remembers()
            elif engine.disturbed or grows:
                engine.connect()
        chance = Random(1)
        for _ in range(ROUNDS):
            for engine in self.engines.values():
                engine.deliver_all()
            await asyncio.sleep(10)
            await self.check()
            for engine in self.engines.values():
                for attempt, name in engine.where(lambda process: process.ended is None):
                    engine.one_ends(attempt, name, self.clock(), chance)
            if not any(job.live for job in self.records.jobs.values()) and self.idle():
                return

    def idle(self) -> bool:
        assert self.control
        outboxes = self.control._outboxes.values()
        return not any(e.wire or e.held for e in self.engines.values()) and not any(
            o._waiting for o in outboxes
        )

    def check_end(self) -> None:
        stuck = [f"{job.id} ({job.state})" for job in self.records.jobs.values() if job.live]
        assert not stuck, f"jobs never end: {', '.join(stuck)}"
        for engine in self.engines.values():
            assert not engine.held, f"never forgotten: {', '.join(map(str, engine.held))}"
        assert self.control
        assert self.idle()
        machine = self.control._machine
        assert not any((machine.jobs, machine.placed, machine.finishing, machine.handles, machine.trials))
        for engine in self.engines:
            assert len(machine.queues[engine]) == 0
            assert machine.pools[engine].free == machine.pools[engine].total
        for job in self.records.jobs.values():
            assert [event.kind for event in self.records.events[job.id]].count(EventKind.ENDED) == 1
            self.check_cause(job)

    def check_cause(self, job: Job) -> None:
        """The first report that decides an attempt decides it."""
        spec, decisive = self.records.specs[job.id], self.decisive[job.current]
        kinds = {type(report) for report in decisive}
        if (
            job.id in self.records.stops
            or kinds != {Ended}
            or spec.policy.in_place
            or spec.policy.preemptible
        ):
            return
        if job.reason in (Reason.REFUSED, Reason.WAITED):
            return
        lead = ReplicaName("master", 0)
        for report in decisive:
            assert isinstance(report, Ended)
            if report.cause is not Cause.EXIT or report.code != 0:
                expected = judge(report).reason
                break
            if report.replica == lead:
                expected = Reason.SUCCEEDED
                break
        else:
            raise AssertionError(f"job {job.id} ended, but no report says so")
        assert job.reason is expected, f"job {job.id} ended: {job.reason}, not {expected}"


def check_pool(pool: NodePool, placements: list[dict]) -> None:
    """What is free and what is allocated add up on each node, and no GPU is allocated twice."""
    free = Counter[str]()
    allocations = [one for placement in placements for one in placement.values() if one.node in pool._nodes]
    for node in pool.nodes:
        taken = sum((one.share for one in allocations if one.node == node.name), NOTHING)
        free[node.name] = node.millicores - taken.millicores
        assert pool.free_on(node.name) == (
            free[node.name],
            node.memory - taken.memory,
            node.gpus - taken.gpus,
        )
    assert pool.free.millicores == sum(free.values())
