"""Where replicas run. One file or folder for each engine, all behind the protocol below."""

from collections.abc import AsyncIterator
from typing import Protocol

from turnout.errors import TurnoutError
from turnout.job import Attempt, Launch, Mark, Replica, ReplicaLog, ReplicaName, Report, Size, Terminal

__all__ = ["Engine", "Mark", "Refused", "ReplicaLog", "Unreachable"]


class Refused(TurnoutError):
    """The engine will never run this launch; the message says why. Final for the attempt."""


class Unreachable(TurnoutError):
    """The engine did not answer; the same call may work later."""


class Engine(Protocol):
    """Called by control only, except `log` and `follow`, which the service reads with, and what people visit."""

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

    async def restart(self, launch: Launch, replica: ReplicaName, restarts: int) -> None:
        """Start one that has ended again, in its place: the same address, ports, files and logs; the others go on.

        For the `restarts`th time, by which it is idempotent. Otherwise as `start`.
        """
        ...

    async def stop(self, attempt: Attempt, grace: float, replicas: tuple[ReplicaName, ...] = ()) -> None:
        """TERM, `grace` seconds, KILL; of these replicas or of all. Idempotent. The ends come as reports."""
        ...

    async def save(self, attempt: Attempt) -> None:
        """After its last replica: what it wrote is brought to where it belongs. Idempotent. Saved tells the outcome."""
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

    def written(self, attempt: Attempt, replica: ReplicaName, path: str, most: int) -> bytes:
        """The beginning of a file in one of its scratch directories, until it is forgotten; empty: there is none.

        Blocks on the disk at most.
        """
        ...

    def follow(self, attempt: Attempt) -> AsyncIterator[None]:
        """Yields whenever a log of the attempt may have grown."""
        ...

    async def shell(self, attempt: Attempt, replica: ReplicaName, size: Size) -> Terminal:
        """A shell in the replica's own surroundings, which ends with it. Raises WrongState or Unreachable."""
        ...

    async def dashboard(self, attempt: Attempt, replica: Replica) -> tuple[str, int] | None:
        """Where a page of the replica's program can be reached from here. None: it has none at the moment."""
        ...
