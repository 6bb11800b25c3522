"""The state machine alone, with a cluster of thousands of nodes and a million waiting jobs: no store, no engine."""

import gc
import resource
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from bench.floor import Floor
from bench.table import Row, Table
from turnout.control.explain import explain
from turnout.control.live_job import SECOND
from turnout.control.state_machine import StateMachine
from turnout.control.turn import Create, EngineReport, StartGang, Turn
from turnout.engines import Traits
from turnout.job import (
    Capacity,
    Cause,
    Ended,
    Launch,
    NewJob,
    Node,
    Policy,
    Program,
    Report,
    Resources,
    Role,
    Spec,
    Started,
    Synced,
)
from turnout.job.resources import GIB
from turnout.projects import Quota, Quotas

NODES, QUEUED, RUNNING, SHAPES = 10_000, 1_000_000, 100_000, 50
CORES, MEMORY, GPUS = 64, 512 * GIB, 8
AT_ONCE, TURNS, EXPLAINED = 1000, 300, 5
CLUSTER = ENGINE = "here"


def scale(table: Table, directory: Path, floor: Floor) -> None:
    for traits in (Traits("local"), Traits("slurm", pending=50)):
        gc.collect()
        _measure(table, Simulation(traits, 10 if table.quick else 1))


class Simulation:
    """A machine with running and waiting jobs. Its engine starts everything at once."""

    def __init__(self, traits: Traits, divisor: int) -> None:
        self.traits = traits
        self.nodes, self.queued, self.running = NODES // divisor, QUEUED // divisor, RUNNING // divisor
        # By default at most 100,000 jobs of a project wait.
        quotas = Quotas({"project": Quota(waiting=None)})
        self.machine = StateMachine({ENGINE: traits}, lambda cluster: ENGINE, quotas)
        self.now = 1_700_000_000 * SECOND
        self.ids = count(1)
        self.specs = list(_shapes(self.nodes / self.running))
        self.launched: deque[Launch] = deque()
        """What was started, the newest last."""
        nodes = (Node(f"node-{number}", CORES * 1000, MEMORY, GPUS) for number in range(self.nodes))
        self.step(Capacity(tuple(nodes)), Synced(frozenset()))

    def step(self, *inputs: Report | Create) -> Turn:
        self.now += SECOND // 1000
        made = [one if isinstance(one, Create) else EngineReport(ENGINE, one) for one in inputs]
        turn = self.machine.step(made, self.now, self.now)
        self.launched += [one.launch for one in turn.instructions if isinstance(one, StartGang)]
        return turn

    def creation(self, spec: Spec | None = None) -> Create:
        job_id = next(self.ids)
        name = f"job-{job_id}"
        spec = spec or self.specs[job_id % SHAPES]
        return Create(job_id, NewJob("project", "tia", "", name, name, CLUSTER, spec, b"{}"), taken=False)

    def fill(self) -> None:
        """An engine with a queue of its own gets more as soon as something starts."""
        started, live = 0, self.machine.jobs
        while len(live) < self.queued + self.running:
            self.step(*(self.creation() for _ in range(AT_ONCE)))
            while started < len(self.launched) and started < self.running:
                self.start(self.launched[started])
                started += 1

    def start(self, launch: Launch) -> None:
        self.step(*(Started(launch.attempt, name, self.now, 1, "10.0.0.1") for name, _ in launch.replicas()))

    def end(self, launch: Launch) -> None:
        self.step(*(Ended(launch.attempt, name, self.now, Cause.EXIT, 0) for name, _ in launch.replicas()))

    def explain_last(self) -> None:
        """The job with the largest id has waited for the shortest time."""
        explain(self.machine, self.machine.jobs[next(reversed(self.machine.jobs))])


def _shapes(nodes: float) -> Iterator[Spec]:
    """Gangs of one to four replicas, some with GPUs, half with a time limit. On average each takes so many nodes."""
    for number in range(SHAPES):
        replicas = 1 + number % 4
        cores = CORES * nodes * (0.5 + number / SHAPES) / replicas
        needs = Resources.of(cores, 4 * GIB, gpus=int(number % 10 == 0))
        roles = [Role("master", Program(("train",)), resources=needs, leads=True)]
        if replicas > 1:
            roles.append(Role("worker", Program(("train",)), replicas - 1, needs))
        limit = 3600.0 * (1 + number % 5) if number % 2 else None
        yield Spec(tuple(roles), policy=Policy(time_limit=limit, preemptible=number % 5 == 0))


def _measure(table: Table, here: Simulation) -> None:
    kind = "placed on nodes" if here.traits.pending is None else "handed to a queue"
    step = table.steps(f"scale, {kind}", 2)
    before = _resident()
    gc.disable()  # it would look again and again at all that is there already
    here.fill()
    gc.enable()
    live, running = len(here.machine.jobs), len(here.machine.placed)
    memory = (_resident() - before) / live
    step()
    took = {
        "create a job": _median(lambda: here.step(here.creation()), TURNS),
        "a job ends, the next one starts": _median(lambda: here.end(here.launched.popleft()), TURNS),
        "a start is reported": _median(lambda: here.start(here.launched.pop()), TURNS),
        "explain the last of the queue": _median(here.explain_last, EXPLAINED),
    }
    large = Role("master", Program(("train",)), here.nodes // 10, Resources.of(CORES, MEMORY), leads=True)
    here.step(here.creation(Spec((large,))))
    took["explain one for a tenth of all nodes"] = _median(here.explain_last, EXPLAINED)
    took["a full garbage collection of Python"] = _median(gc.collect, 1)
    step()
    table.note(
        f"scale, {kind}: {here.nodes:,} nodes, {running:,} running jobs, {live - running:,} waiting ones"
    )
    for what, value in took.items():
        table.add(Row("scale", f"{kind}: {what}", value, "ms"))
    if here.traits.pending is None:
        # The other simulation uses memory that this one has freed.
        table.add(Row("scale", f"{kind}: memory for each live job", memory / 1e3, "kB"))


def _median(call: Callable[[], object], times: int) -> float:
    """Milliseconds."""
    took: list[float] = []
    for _ in range(times):
        before = time.perf_counter()
        call()
        took.append((time.perf_counter() - before) * 1e3)
    return statistics.median(took)


def _resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
