"""The rows that describe a job: narrow and flat, as the store keeps them. Times are nanoseconds since 1970."""

import msgspec

from turnout.job.launch import Attempt, ReplicaName
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

    @property
    def name(self) -> ReplicaName:
        return ReplicaName(self.role, self.index)


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
