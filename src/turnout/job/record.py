"""The rows that describe a job: narrow and flat, as the store keeps them. Times are nanoseconds since 1970."""

from enum import StrEnum

import msgspec

from turnout.job.launch import Attempt, ReplicaName
from turnout.job.search import Point
from turnout.job.spec import Spec
from turnout.job.state import LIVE, Reason, ReplicaState, State


class NewJob(msgspec.Struct, frozen=True, gc=False):
    """A job to create. A non-empty `handle` is unique in (project, scope) among jobs that are not deleted."""

    project: str
    dialect: str
    scope: str
    handle: str
    name: str
    cluster: str
    spec: Spec
    document: bytes
    """The request as JSON, for its own API to return."""
    notes: tuple[str, ...] = ()
    """Notes for the user about how the job runs on this service. Each becomes an event."""
    labels: dict[str, str] = {}
    """Names and values by which the dialect can filter jobs, besides the columns."""


class Job(msgspec.Struct, gc=False):
    id: int
    project: str
    dialect: str
    scope: str
    handle: str
    name: str
    cluster: str
    state: State
    priority: int
    created: int
    updated: int
    attempt: int = 0
    started: int | None = None
    ended: int | None = None
    deleted: int | None = None
    reason: Reason | None = None
    message: str = ""
    owner: str = ""
    """Who created it: the id of a key, `root`, or the local user. A trial has the owner of its search."""

    @property
    def live(self) -> bool:
        return self.state in LIVE

    @property
    def current(self) -> Attempt:
        return Attempt(self.id, self.attempt)


class Replica(msgspec.Struct, gc=False):
    """One replica of one attempt."""

    job: int
    attempt: int
    role: str
    index: int
    state: ReplicaState = ReplicaState.WAITING
    node: str = ""
    address: str = ""
    pid: int | None = None
    gpus: str = ""
    """GPU numbers, separated by commas."""
    started: int | None = None
    ended: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    restarts: int = 0
    """How often it was restarted in place. All fields but `started` describe the last start."""

    @property
    def name(self) -> ReplicaName:
        return ReplicaName(self.role, self.index)

    @property
    def shell_code(self) -> int | None:
        """The exit code as a shell has it: 128 + n for signal n."""
        return self.exit_code if self.signal is None else 128 + self.signal


class Submission(msgspec.Struct, frozen=True, gc=False):
    """An attempt in the queue of an engine that has one."""

    job: int
    attempt: int
    engine: str
    """The kind of engine."""
    engine_id: str
    """The engine's own name for it, for example the number of the Slurm job."""


class PastAttempt(msgspec.Struct, frozen=True, gc=False):
    """An attempt before the job's last: when and why it ended."""

    job: int
    attempt: int
    started: int | None
    ended: int
    reason: Reason
    message: str
    replica: str = ""
    """The replica that decided it, for example `worker-1`."""
    code: int | None = None
    """The exit code of that replica, 128 + n for signal n; None if unknown."""


class Sample(msgspec.Struct, frozen=True, gc=False):
    """A replica's average use since the last sample, in percent; None if there is nothing to measure."""

    replica: ReplicaName
    at: int
    cpu: float | None = None
    """Of its cores."""
    memory: float | None = None
    gpu: float | None = None
    gpu_memory: float | None = None


class Asset(msgspec.Struct, frozen=True, gc=False):
    """A stored document other than a job: an algorithm, an experiment, a workspace.

    Its `id` is unique in (project, kind), its `name` in (project, kind, scope).
    """

    project: str
    kind: str
    id: str
    scope: str
    name: str
    created: int
    updated: int
    document: bytes


class TrialState(StrEnum):
    REQUESTED = "requested"
    ACTIVE = "active"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    INFEASIBLE = "infeasible"
    """It failed, or it never reported the objective."""


class Trial(msgspec.Struct, gc=False):
    """One point of a search, and the job that runs it."""

    job: int
    """The search."""
    number: int
    """Counted from 0, in the order in which points were chosen."""
    id: str
    """Eight hexadecimal digits."""
    algorithm: int
    """The number of the algorithm that chose it."""
    parameters: Point
    child: int
    """The job that runs it."""
    created: int
    state: TrialState = TrialState.REQUESTED
    value: float | None = None
    """The value of the objective, which is the search's first metric."""
    metrics: dict[str, float] = {}
    started: int | None = None
    ended: int | None = None
    message: str = ""

    @property
    def display_name(self) -> str:
        """Its number, which Vertex shows, and its id, which ModelArts shows."""
        return f"{self.number + 1} ({self.id})"


class Measurement(msgspec.Struct, frozen=True, gc=False):
    """What a trial measured at one step."""

    job: int
    number: int
    step: int
    at: int
    metrics: dict[str, float]
