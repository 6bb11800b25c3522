"""The rows that describe a job: narrow and flat, as the store keeps them. Times are nanoseconds since 1970."""

from enum import StrEnum

import msgspec

from turnout.job.launch import Attempt, ReplicaName
from turnout.job.search import Point
from turnout.job.spec import Spec
from turnout.job.state import LIVE, Reason, ReplicaState, State


class NewJob(msgspec.Struct, frozen=True):
    """What a dialect hands in. A `handle` that is not empty is unique in (project, scope) among jobs not deleted."""

    project: str
    dialect: str
    scope: str
    handle: str
    name: str
    cluster: str
    spec: Spec
    document: bytes
    """The request as it was sent, for its own API to give back."""
    notes: tuple[str, ...] = ()
    """What the user should know about how the job is run here; each becomes an event."""
    labels: dict[str, str] = {}
    """What its dialect finds it by, besides the columns of a job."""


class Job(msgspec.Struct):
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

    @property
    def live(self) -> bool:
        return self.state in LIVE

    @property
    def current(self) -> Attempt:
        return Attempt(self.id, self.attempt)


class Replica(msgspec.Struct):
    """One member of one attempt."""

    job: int
    attempt: int
    role: str
    index: int
    state: ReplicaState = ReplicaState.WAITING
    node: str = ""
    address: str = ""
    pid: int | None = None
    gpus: str = ""
    """Device numbers with commas between them."""
    started: int | None = None
    ended: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    restarts: int = 0
    """How often it has been started again in its place: all but `started` is of the last time."""

    @property
    def name(self) -> ReplicaName:
        return ReplicaName(self.role, self.index)

    @property
    def shell_code(self) -> int | None:
        """How it exited, as a shell would say it: 128 + n for signal n."""
        return self.exit_code if self.signal is None else 128 + self.signal


class Past(msgspec.Struct, frozen=True):
    """An attempt that was not the job's last: when and why it ended."""

    job: int
    attempt: int
    started: int | None
    ended: int
    reason: Reason
    message: str
    replica: str = ""
    """Who decided it: `worker-1`."""
    code: int | None = None
    """How that one exited, 128 + n for signal n; None: nobody knows."""


class Sample(msgspec.Struct, frozen=True):
    """What a replica used, on average since the sample before. Percentages; None: there is nothing to measure."""

    replica: ReplicaName
    at: int
    cpu: float | None = None
    """Of the cores it may use."""
    memory: float | None = None
    gpu: float | None = None
    gpu_memory: float | None = None


class Asset(msgspec.Struct, frozen=True):
    """A document that is no job: an algorithm, an experiment, a workspace.

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
    """It failed, or it said nothing about the metric that decides."""


class Trial(msgspec.Struct):
    """One point of a search, and the job that tries it."""

    job: int
    """The search."""
    number: int
    """From 0, in the order in which points were chosen."""
    id: str
    """Eight hexadecimal digits."""
    algorithm: int
    """Which of the search's algorithms chose it."""
    parameters: Point
    child: int
    created: int
    state: TrialState = TrialState.REQUESTED
    value: float | None = None
    """Of the metric that decides."""
    metrics: dict[str, float] = {}
    started: int | None = None
    ended: int | None = None
    message: str = ""

    @property
    def called(self) -> str:
        """By its number and by its id: one cloud has the one, another the other."""
        return f"{self.number + 1} ({self.id})"


class Measurement(msgspec.Struct, frozen=True):
    """What a trial said of itself on its way."""

    job: int
    number: int
    step: int
    at: int
    metrics: dict[str, float]
