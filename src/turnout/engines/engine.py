"""The protocol of an engine: what every engine can do, and when each method is called."""

from collections.abc import AsyncIterator, Mapping
from socket import socket
from typing import NamedTuple, Protocol

from turnout.errors import TurnoutError
from turnout.job import Attempt, Launch, Mark, Replica, ReplicaLog, ReplicaName, Report, Size, Terminal

__all__ = ["Engine", "Mark", "Refused", "ReplicaLog", "Traits", "Unreachable"]


class Refused(TurnoutError):
    """The engine cannot run this launch; the message says why. The attempt ends."""


class Unreachable(TurnoutError):
    """The engine did not answer; the same call may work later."""


class Traits(NamedTuple):
    """What the controller must know of an engine to schedule for it."""

    kind: str
    """`local`, `slurm`, …"""
    pending: int | None = None
    """None: it reports its nodes, and the controller places gangs on them. Otherwise it has a queue of its own, and the
    controller hands gangs over in the order of its own queue, so that at most this many wait there.
    """


class Engine(Protocol):
    """The controller calls these methods, except those that read for users: `runtime`, `log`, `read_scratch_file`,
    `follow`, `shell` and `program_page`.
    """

    traits: Traits

    def remember(self, submitted: Mapping[Attempt, str]) -> None:
        """Gives the engine the ids that it reported as Submitted for live attempts. Called once, before `reports`."""
        ...

    async def open(self) -> None:
        """Get ready. Called once, before anything else."""
        ...

    def stopping(self) -> None:
        """The service is about to stop on purpose: calls that wait must end. `close` follows."""
        ...

    async def close(self) -> None:
        """Disconnect. Running jobs continue."""
        ...

    def trouble(self) -> str:
        """Why it cannot be reached at the moment, although it has reported; empty if it can."""
        ...

    def reports(self) -> AsyncIterator[Report]:
        """First Capacity and the state of everything that the engine holds, then Synced, then what happens, for ever.

        After a lost connection it starts over with everything that it holds. The controller ignores repeated reports.
        """
        ...

    def runtime(self, name: str) -> str:
        """What this runtime is on this engine, for people: `Python 3.11.2 (/usr/bin/python3)`."""
        ...

    def refuses(self, launch: Launch) -> str:
        """Why it can never run such a gang, in words for the user; empty: it may. Called when a job is created."""
        ...

    async def start(self, launch: Launch) -> None:
        """Called after the commit. Idempotent by (attempt, replica). Raises Refused or Unreachable.

        Returns as soon as the start is accepted.
        """
        ...

    async def restart(self, launch: Launch, replica: ReplicaName, restarts: int) -> None:
        """Start a replica again after its end, with the same address, ports, files and logs. The others continue.

        `restarts` counts the restarts of this replica; the call is idempotent by it. 0: the engine holds the gang, but
        may never have started this replica. Otherwise as `start`.
        """
        ...

    async def stop(self, attempt: Attempt, grace: float, replicas: tuple[ReplicaName, ...] = ()) -> None:
        """Send TERM to these replicas, or to all; KILL after `grace` seconds. Idempotent. The ends come as reports."""
        ...

    async def save(self, attempt: Attempt) -> None:
        """Save the outputs, after the last replica has ended. Idempotent. The report Saved has the outcome."""
        ...

    async def forget(self, attempt: Attempt, keep_workspace: bool = False) -> None:
        """Drop the attempt and remove its workspace, after its end is committed. Logs stay."""
        ...

    async def remove(self, attempts: list[Attempt]) -> None:
        """Delete everything of these attempts on disk, including logs."""
        ...

    async def attempts_on_disk(self) -> list[Attempt]:
        """Attempts that have files on disk."""
        ...

    def log(self, attempt: Attempt, replica: ReplicaName) -> ReplicaLog: ...

    def read_scratch_file(self, attempt: Attempt, replica: ReplicaName, path: str, most: int) -> bytes:
        """The beginning of a file in a scratch directory, until the attempt is forgotten; empty: there is none.

        Blocks, but only on the disk.
        """
        ...

    def follow(self, attempt: Attempt) -> AsyncIterator[None]:
        """Yield whenever a log of the attempt may have grown."""
        ...

    async def shell(self, attempt: Attempt, replica: ReplicaName, size: Size) -> Terminal:
        """A shell beside the replica's program, which ends with the replica. Raises WrongState or Unreachable."""
        ...

    async def program_page(self, attempt: Attempt, replica: Replica) -> socket | None:
        """A connection to the web page that the program serves; None: it serves none now. Raises OSError as well."""
        ...
