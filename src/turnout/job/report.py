"""Reports of engines about replicas, in any order, possibly more than once."""

from enum import StrEnum
from typing import NamedTuple

from turnout.job.launch import Attempt, ReplicaName
from turnout.job.record import Sample


class Cause(StrEnum):
    """Why a replica ended, by what the engine knows."""

    EXIT = "exit"
    """It ended by itself, with `code` or `signal`."""
    STOPPED = "stopped"
    """The controller stopped it."""
    TIME_LIMIT = "time limit"
    OUT_OF_MEMORY = "out of memory"
    DISK_LIMIT = "disk limit"
    """Its workspace and /tmp exceed the disk limit."""
    NOT_FOUND = "not found"
    """The program could not be started: it does not exist or is not executable."""
    STAGING = "staging"
    """A mount could not be made, or data could not be moved."""
    PREEMPTED = "preempted"
    """The engine ended it for the sake of another job."""
    REFUSED = "refused"
    """The engine will not run it; the message says why."""
    LOST = "lost"
    """It has ended with an unknown exit code: the supervisor or the machine went down."""


class Submitted(NamedTuple):
    """A gang is in the engine's own queue. `engine_id` is the engine's own name for it, which is stored."""

    attempt: Attempt
    engine_id: str


class Pending(NamedTuple):
    """What a gang that was handed to the engine waits for, in words for its user; empty: for nothing any more."""

    attempt: Attempt
    message: str


class Started(NamedTuple):
    attempt: Attempt
    replica: ReplicaName
    at: int
    pid: int
    address: str
    restarts: int = 0
    """The number of restarts before this start."""
    node: str = ""
    """Where it runs, if the engine chose that."""


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
        """As a shell has it: 128 + n for signal n."""
        return self.code if self.signal is None else 128 + self.signal


class Trimmed(NamedTuple):
    """The middle of a log was dropped because the log grew beyond its limit."""

    attempt: Attempt
    replica: ReplicaName
    at: int
    message: str


class Noted(NamedTuple):
    """Something that its user should know while the attempt is prepared."""

    attempt: Attempt
    at: int
    message: str
    image: bool = False
    """It says which image the attempt runs in."""


class Saved(NamedTuple):
    """An attempt's outputs are stored. If that failed, `trouble` says why."""

    attempt: Attempt
    at: int
    trouble: str = ""
    message: str = ""
    """A description of what was copied; empty if nothing was."""


class Hung(NamedTuple):
    """No replica of the attempt used CPU or did I/O for as long as its policy allows."""

    attempt: Attempt
    at: int
    message: str


class Sampled(NamedTuple):
    """What an attempt's replicas use now."""

    attempt: Attempt
    samples: tuple[Sample, ...]


class Node(NamedTuple):
    name: str
    millicores: int
    memory: int
    gpus: int


class Capacity(NamedTuple):
    """All current nodes."""

    nodes: tuple[Node, ...]


class Drained(NamedTuple):
    """Whether the engine takes no new gangs, because an operator wants it so. Running ones go on."""

    on: bool


class Synced(NamedTuple):
    """The engine has reported everything it holds; `held` are the attempts it has."""

    held: frozenset[Attempt]


Report = (
    Submitted
    | Pending
    | Noted
    | Started
    | Ended
    | Saved
    | Trimmed
    | Hung
    | Sampled
    | Capacity
    | Drained
    | Synced
)
