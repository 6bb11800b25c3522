"""Where replicas run. One file or folder for each engine, all behind the protocol below."""

from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol

from turnout.errors import TurnoutError
from turnout.job import Attempt, Launch, ReplicaName, Report


class Refused(TurnoutError):
    """The engine will never run this launch; the message says why. Final for the attempt."""


class Unreachable(TurnoutError):
    """The engine did not answer; the same call may work later."""


class Mark(NamedTuple):
    """When (ns) the streams had how many bytes. Marks of a replica are at least 1 ms apart."""

    at: int
    stdout: int
    stderr: int


class ReplicaLog(Protocol):
    """A replica's two streams and their marks. All calls block on the disk at most: call them in a thread."""

    def size(self, stream: int) -> int:
        """Bytes in stream 0 (stdout) or 1 (stderr) so far; 0 if there is none yet."""
        ...

    def read(self, stream: int, offset: int, count: int) -> bytes:
        """At most `count` bytes from `offset`; less at the end or before a hole."""
        ...

    def hole(self, stream: int) -> tuple[int, int] | None:
        """The part that was given up because the log grew beyond its limit."""
        ...

    def marks(self, first: int = 0, count: int | None = None) -> list[Mark]:
        """Marks from number `first` on."""
        ...

    def mark_count(self) -> int: ...


class Engine(Protocol):
    """Called by control only, except `log` and `follow`, which the service reads with."""

    places: bool
    """True: control schedules on its nodes. False: it has a queue of its own; control hands over in order."""

    async def open(self) -> None:
        """Make ready. Called once, before anything else."""
        ...

    async def close(self) -> None:
        """Let go. What runs goes on running."""
        ...

    def reports(self) -> AsyncIterator[Report]:
        """First Capacity and the truth about all that it holds, then Synced, then live, for ever.

        After a broken connection it begins again with all that it holds: reports may repeat, and control does not mind.
        """
        ...

    def runtime(self, name: str) -> str:
        """What a program that asks for this runtime really gets, for people: `Python 3.11.2 (/usr/bin/python3)`."""
        ...

    async def start(self, launch: Launch) -> None:
        """After the commit. Idempotent by (attempt, replica). Returns once accepted; raises Refused or Unreachable."""
        ...

    async def stop(self, attempt: Attempt, grace: float, replicas: tuple[ReplicaName, ...] = ()) -> None:
        """TERM, `grace` seconds, KILL; of these replicas or of all. Idempotent. The ends come as reports."""
        ...

    async def forget(self, attempt: Attempt, keep_workspace: bool = False) -> None:
        """After the end is committed: the journal may drop it, and the workspace goes. Logs stay."""
        ...

    async def remove(self, attempts: list[Attempt]) -> None:
        """Delete all that is left of them on disk, logs included."""
        ...

    async def stored(self) -> list[Attempt]:
        """Attempts that have something on disk."""
        ...

    def log(self, attempt: Attempt, replica: ReplicaName) -> ReplicaLog: ...

    def follow(self, attempt: Attempt) -> AsyncIterator[None]:
        """Yields whenever a log of the attempt may have grown."""
        ...
