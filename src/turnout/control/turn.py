"""What goes into a turn of the machine, and what comes out of it."""

from dataclasses import dataclass, field

from turnout.errors import TurnoutError
from turnout.job import (
    Attempt,
    Job,
    Launch,
    Measurement,
    NewJob,
    Reason,
    ReplicaName,
    Report,
    State,
    Trial,
    TrialState,
)
from turnout.store import Batch


@dataclass(frozen=True, slots=True)
class Create:
    job_id: int
    new: NewJob
    taken: bool
    """Whether the store has a job of that name."""
    trial: Trial | None = None
    """What it tries, for a search that is live."""


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
    trials: tuple[Job, ...] = ()
    """A search's, as the store has them: they go with it."""


@dataclass(frozen=True, slots=True)
class Amend:
    """What is None stays as it is."""

    job_id: int
    by: str
    stored: Job | None
    """See Delete."""
    document: bytes | None = None
    priority: int | None = None
    labels: dict[str, str] | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class StopTrial:
    job_id: int
    number: int
    why: str


@dataclass(frozen=True, slots=True)
class Conclude:
    """How a trial, whose job has ended, did."""

    job_id: int
    number: int
    state: TrialState
    attempt: int
    """The last of its job."""
    ended: int
    value: float | None = None
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    message: str = ""
    measurements: tuple[Measurement, ...] = ()
    best: str = ""
    """The best trial so far, for people."""


@dataclass(frozen=True, slots=True)
class Finish:
    """A search tries no more: what it has come to. Trials that still run are ended."""

    job_id: int
    state: State
    reason: Reason
    message: str


Command = Create | Stop | Delete | Amend | StopTrial | Conclude | Finish


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
class StartAgain:
    """One replica of a gang that goes on, for the `restarts`th time."""

    engine: str
    launch: Launch
    replica: ReplicaName
    restarts: int


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


Instruction = StartGang | StartAgain | StopGang | Save | Forget | Remove


@dataclass(slots=True)
class Turn:
    """What one step asks for. `answers` belong to the commands among the inputs, in their order."""

    batch: Batch = field(default_factory=Batch)
    answers: list[Job | TurnoutError] = field(default_factory=list[Job | TurnoutError])
    instructions: list[Instruction] = field(default_factory=list[Instruction])
    ended: list[Job] = field(default_factory=list[Job])
    changed: set[int] = field(default_factory=set[int])
    wake_at: int | None = None
