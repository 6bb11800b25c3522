"""The inputs and outputs of one turn of the state machine."""

from dataclasses import dataclass, field

from turnout.control.transitions import Transition
from turnout.errors import TurnoutError
from turnout.job import (
    Attempt,
    AuditLine,
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
    """Whether the store already has a job of that name."""
    trial: Trial | None = None
    """The trial that it runs, for a job of a live search."""
    owner: str = ""
    audit: AuditLine | None = None
    """What the audit trail says if it succeeds; the state machine adds the job."""


@dataclass(frozen=True, slots=True)
class Stop:
    job_id: int
    by: str
    audit: AuditLine | None = None
    """See Create."""


@dataclass(frozen=True, slots=True)
class Delete:
    job_id: int
    by: str
    stored: Job | None
    """The stored job, if it is no longer live."""
    trials: tuple[Job, ...] = ()
    """The stored jobs of a search's trials, which are deleted with it."""
    audit: AuditLine | None = None
    """See Create."""


@dataclass(frozen=True, slots=True)
class Amend:
    """Changes the fields that are not None."""

    job_id: int
    by: str
    stored: Job | None
    """See Delete."""
    document: bytes | None = None
    priority: int | None = None
    labels: dict[str, str] | None = None
    note: str = ""
    audit: AuditLine | None = None
    """See Create."""


@dataclass(frozen=True, slots=True)
class StopTrial:
    job_id: int
    number: int
    why: str


@dataclass(frozen=True, slots=True)
class FinishTrial:
    """The result of a trial whose job has ended."""

    job_id: int
    number: int
    state: TrialState
    attempt: int
    """The last attempt of its job."""
    ended: int
    value: float | None = None
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    message: str = ""
    measurements: tuple[Measurement, ...] = ()
    best: str = ""
    """A description of the best trial so far."""


@dataclass(frozen=True, slots=True)
class FinishSearch:
    """The result of a search that starts no more trials. Running trials are stopped."""

    job_id: int
    state: State
    reason: Reason
    message: str


Command = Create | Stop | Delete | Amend | StopTrial | FinishTrial | FinishSearch


@dataclass(frozen=True, slots=True)
class EngineReport:
    """A report, and the engine that it came from."""

    engine: str
    report: Report


@dataclass(frozen=True, slots=True)
class BrokenJob:
    """A live job whose record or report cannot be processed: it ends."""

    job_id: int
    why: str


class Tick:
    """The wake-up time that the last turn requested has come."""


Input = Command | EngineReport | BrokenJob | Tick


@dataclass(frozen=True, slots=True)
class StartGang:
    engine: str
    launch: Launch


@dataclass(frozen=True, slots=True)
class RestartReplica:
    """Restarts one replica of a running gang for the `restarts`th time."""

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


Instruction = StartGang | RestartReplica | StopGang | Save | Forget | Remove


@dataclass(slots=True)
class Turn:
    """The result of one step. `answers` belong to the commands among the inputs, in order."""

    batch: Batch = field(default_factory=Batch)
    answers: list[Job | TurnoutError] = field(default_factory=list[Job | TurnoutError])
    instructions: list[Instruction] = field(default_factory=list[Instruction])
    ended: list[Job] = field(default_factory=list[Job])
    changed: set[int] = field(default_factory=set[int])
    transitions: list[Transition] = field(default_factory=list[Transition])
    wake_at: int | None = None
    """By the steady clock."""
