"""What engines tell: the truth about replicas, in any order, possibly more than once."""

from enum import StrEnum
from typing import NamedTuple

from turnout.job.launch import Attempt, ReplicaName
from turnout.job.record import Sample


class Cause(StrEnum):
    """Why a replica ended, as far as the engine knows."""

    EXIT = "exit"
    """By itself: `code` or `signal` says how."""
    STOPPED = "stopped"
    """We ended it, because control asked for it."""
    TIME_LIMIT = "time limit"
    OUT_OF_MEMORY = "out of memory"
    NOT_FOUND = "not found"
    """The program could not be started: no such file, or not executable."""
    STAGING = "staging"
    """A mount could not be made, or data could not be moved."""
    REFUSED = "refused"
    """The engine will not run it; the message says why."""
    LOST = "lost"
    """It is gone and its exit code is not known: the keeper or the machine went down."""


class Started(NamedTuple):
    attempt: Attempt
    replica: ReplicaName
    at: int
    pid: int
    address: str
    restarts: int = 0
    """Which of its starts this is: how many came before."""


class Ended(NamedTuple):
    attempt: Attempt
    replica: ReplicaName
    at: int
    cause: Cause
    code: int | None = None
    signal: int | None = None
    message: str = ""
    restarts: int = 0
    """See Started."""

    @property
    def shell_code(self) -> int | None:
        """As a shell would say it: 128 + n for signal n."""
        return self.code if self.signal is None else 128 + self.signal


class Trimmed(NamedTuple):
    """The middle of a log was given up because it grew beyond its limit."""

    attempt: Attempt
    replica: ReplicaName
    at: int
    message: str


class Saved(NamedTuple):
    """What an attempt wrote is where it belongs, or cannot be brought there: `trouble` says why."""

    attempt: Attempt
    at: int
    trouble: str = ""
    message: str = ""
    """What was moved, for people; empty: nothing had to be."""


class Hung(NamedTuple):
    """No member of the attempt's gang has done anything for as long as its policy allows."""

    attempt: Attempt
    at: int
    message: str


class Sampled(NamedTuple):
    """What an attempt's replicas use at the moment."""

    attempt: Attempt
    samples: tuple[Sample, ...]


class Node(NamedTuple):
    name: str
    cpu: float
    memory: int
    gpus: int
    gpu_kind: str = ""


class Capacity(NamedTuple):
    """All the nodes there are now."""

    nodes: tuple[Node, ...]


class Synced(NamedTuple):
    """Everything that the engine holds has been told; `held` names the attempts it knows of."""

    held: frozenset[Attempt]


Report = Started | Ended | Saved | Trimmed | Hung | Sampled | Capacity | Synced
