"""A machine with its surroundings: a clock that is moved by hand, and everything it wrote and said."""

import copy
from collections.abc import Iterable

from turnout.control.live_job import SECOND
from turnout.control.state_machine import StateMachine
from turnout.control.turn import (
    Amend,
    Create,
    Delete,
    EngineReport,
    Input,
    Instruction,
    StartGang,
    Stop,
    StopGang,
    Tick,
    Turn,
)
from turnout.engines import Traits
from turnout.errors import TurnoutError
from turnout.job import (
    Attempt,
    Capacity,
    Cause,
    Ended,
    EventKind,
    Job,
    NewJob,
    Node,
    Policy,
    Program,
    ReplicaName,
    Resources,
    Role,
    Spec,
    Started,
    Synced,
    WhenLeadSucceeds,
)
from turnout.job.resources import CORE, GIB, millicores
from turnout.projects import Quotas
from turnout.store import LiveRecord

PROGRAM = Program(("true",))
MASTER = ReplicaName("master", 0)
LOCAL = Traits("local")


def gang(
    *, cpu: float = 1, memory: int = GIB, gpus: int = 0, workers: int = 0, ps: int = 0, **policy: object
) -> Spec:
    """A master, with workers and parameter servers as asked for, all of the same size."""
    needs = Resources.of(cpu, memory, gpus)
    roles = [Role("master", PROGRAM, resources=needs, leads=True)]
    if workers:
        roles.append(Role("worker", PROGRAM, workers, needs))
    if ps:
        roles.append(Role("ps", PROGRAM, ps, needs, when_lead_succeeds=WhenLeadSucceeds.END))
    return Spec(tuple(roles), policy=Policy(**{"priority": 0} | policy))  # type: ignore[arg-type]


def ready(cpu: float = 4, gpus: int = 0) -> "Room":
    room = Room(cpu=cpu, gpus=gpus)
    room.sync()
    return room


def reloaded(room: "Room", *held: Attempt) -> "Room":
    """What the next service makes of it: all that it knows has gone through the store."""
    stored = [
        LiveRecord(copy.copy(x.job), x.spec, [copy.copy(one) for one in x.replicas.values()], tuple(x.past))
        for x in room.machine.jobs.values()
    ]
    node = room.nodes[0]
    after = Room(node.millicores / CORE, node.memory, node.gpus, stored, room.now, quotas=room.machine.quotas)
    after.ids = room.ids
    after.sync(*held)
    return after


class Room:
    def __init__(
        self,
        cpu: float = 4,
        memory: int = 16 * GIB,
        gpus: int = 0,
        stored: Iterable[LiveRecord] = (),
        now: int = 1_000 * SECOND,
        traits: Traits = LOCAL,
        quotas: Quotas | None = None,
    ) -> None:
        self.machine = StateMachine(
            {"local": traits}, lambda cluster: {"here": "local"}.get(cluster, ""), quotas
        )
        self.now, self.steady = now, 1_000 * SECOND
        self.machine.load(stored, self.now, self.steady)
        self.ids = 0
        self.project = "p"
        self.owner = ""
        self.turns: list[Turn] = []
        self.nodes = (Node("this", millicores(cpu), memory, gpus),)
        self.step(EngineReport("local", Capacity(self.nodes)))

    def sync(self, *held: Attempt) -> Turn:
        return self.step(EngineReport("local", Synced(frozenset(held))))

    def step(self, *inputs: Input, seconds: float = 1) -> Turn:
        self.now += int(seconds * SECOND)
        self.steady += int(seconds * SECOND)
        turn = self.machine.step(inputs, self.now, self.steady)
        self.turns.append(turn)
        return turn

    def create(self, spec: Spec, name: str = "") -> Job:
        turn = self.step(self.creation(spec, name))
        answer = turn.answers[0]
        if isinstance(answer, TurnoutError):
            raise answer
        return answer

    def creation(self, spec: Spec, name: str = "") -> Create:
        self.ids += 1
        name = name or f"job-{self.ids}"
        return Create(
            self.ids,
            NewJob(self.project, "tia", "tia:here", name, name, "here", spec, b"{}"),
            taken=False,
            owner=self.owner,
        )

    def start(self, job: Job, *replicas: ReplicaName) -> Turn:
        """The engine reports that these, or all, have started."""
        names = replicas or tuple(self.machine.jobs[job.id].replicas)
        started = [
            Started(job.current, name, self.now, 100, "127.0.0.9", self.restarts(job, name)) for name in names
        ]
        return self.step(*(EngineReport("local", report) for report in started))

    def end(self, job: Job, name: ReplicaName = MASTER, code: int | None = 0, **more: object) -> Turn:
        cause = more.pop("cause", Cause.EXIT)
        more.setdefault("restarts", self.restarts(job, name))
        return self.step(EngineReport("local", Ended(job.current, name, self.now, cause, code, **more)))  # type: ignore[arg-type]

    def restarts(self, job: Job, name: ReplicaName) -> int:
        live = self.machine.jobs.get(job.id)
        replica = live and live.replicas.get(name)
        return replica.restarts if replica else 0

    def stop(self, job: Job) -> Turn:
        return self.step(Stop(job.id, "alice"))

    def delete(self, job: Job) -> Turn:
        return self.step(Delete(job.id, "alice", None if job.id in self.machine.jobs else job))

    def amend(self, job: Job, **changes: object) -> Turn:
        stored = None if job.id in self.machine.jobs else job
        return self.step(Amend(job.id, "alice", stored, **changes))  # type: ignore[arg-type]

    def resize(self, cpu: float) -> Turn:
        self.nodes = (self.nodes[0]._replace(millicores=millicores(cpu)),)
        return self.step(EngineReport("local", Capacity(self.nodes)))

    def resize_to(self, *nodes: Node) -> Turn:
        self.nodes = nodes
        return self.step(EngineReport("local", Capacity(nodes)))

    def tick(self, seconds: float) -> Turn:
        return self.step(Tick(), seconds=seconds)


def started(turn: Turn) -> list[int]:
    return [one.launch.attempt.job for one in turn.instructions if isinstance(one, StartGang)]


def stopped(turn: Turn) -> list[str]:
    return sorted(
        str(name) for one in turn.instructions if isinstance(one, StopGang) for name in one.replicas
    )


def kinds(turn: Turn) -> list[type[Instruction]]:
    return [type(one) for one in turn.instructions]


def events(turn: Turn, kind: EventKind) -> list[str]:
    return [event.message for event in turn.batch.events if event.kind is kind]
