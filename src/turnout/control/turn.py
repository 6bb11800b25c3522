"""What goes into a turn of the machine, what comes out of it, and what it remembers of a live job."""

from dataclasses import dataclass, field

from turnout.control.pool import Placement, Seat
from turnout.control.verdict import Verdict
from turnout.errors import TurnoutError
from turnout.job import Attempt, Job, Launch, NewJob, Replica, ReplicaName, ReplicaState, Report, Spec
from turnout.job.resources import Share
from turnout.store import Batch


@dataclass(frozen=True, slots=True)
class Create:
    job_id: int
    new: NewJob
    taken: bool
    """Whether the store has a job of that name."""


@dataclass(frozen=True, slots=True)
class Stop:
    job_id: int
    by: str


@dataclass(frozen=True, slots=True)
class Delete:
    job_id: int
    by: str
    stored: Job | None
    """The job as the store has it, for one that is not live any more."""


Command = Create | Stop | Delete


@dataclass(frozen=True, slots=True)
class Told:
    """A report, and the engine that it came from."""

    engine: str
    report: Report


class Tick:
    """Time has passed: the next wake-up that was asked for has come."""


Input = Command | Told | Tick


@dataclass(frozen=True, slots=True)
class StartGang:
    engine: str
    launch: Launch


@dataclass(frozen=True, slots=True)
class StopGang:
    engine: str
    attempt: Attempt
    grace: float
    replicas: tuple[ReplicaName, ...] = ()


@dataclass(frozen=True, slots=True)
class Save:
    engine: str
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Forget:
    engine: str
    attempt: Attempt
    keep_workspace: bool = False


@dataclass(frozen=True, slots=True)
class Remove:
    engine: str
    attempts: tuple[Attempt, ...]


Instruction = StartGang | StopGang | Save | Forget | Remove


@dataclass(slots=True)
class Turn:
    """What one step asks for. `answers` belong to the commands among the inputs, in their order."""

    batch: Batch = field(default_factory=Batch)
    answers: list[Job | TurnoutError] = field(default_factory=list[Job | TurnoutError])
    instructions: list[Instruction] = field(default_factory=list[Instruction])
    ended: list[Job] = field(default_factory=list[Job])
    changed: set[int] = field(default_factory=set[int])
    wake_at: int | None = None


@dataclass(slots=True)
class Live:
    """A job that has not ended, with all that deciding about it needs."""

    job: Job
    spec: Spec
    engine: str
    replicas: dict[ReplicaName, Replica] = field(default_factory=dict[ReplicaName, Replica])
    placement: Placement = field(default_factory=dict[ReplicaName, Seat])
    verdict: Verdict | None = None
    share: Share = field(init=False)
    finish_at: int | None = None
    """When replicas that outlive a lead that succeeded are ended."""
    saved_at: int | None = None

    def __post_init__(self) -> None:
        self.share = self.spec.share

    @property
    def lead(self) -> Replica:
        return self.replicas[ReplicaName(self.spec.lead.name, 0)]

    def running(self) -> list[Replica]:
        return [r for r in self.replicas.values() if r.state in (ReplicaState.WAITING, ReplicaState.RUNNING)]

    def launch(self) -> Launch:
        gpus = {str(name): seat.gpus for name, seat in self.placement.items()}
        job = self.job
        return Launch(job.current, job.project, job.dialect, job.name, self.spec, gpus)
