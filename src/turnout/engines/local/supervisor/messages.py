"""The messages between the service and the supervisor: lines of JSON over the supervisor's socket.

A running supervisor outlives an upgrade of the service, so the keys never change. The plan of a gang, which starts it,
and the restart of a replica are defined in `turnout.runner.plan`.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from turnout.job import Attempt, ReplicaName
from turnout.runner.allowance import Allowance

VERSION = 2
"""The version of these messages that the service speaks."""

Request = dict[str, Any]


# From the service to the supervisor.


def hello(network: dict[str, Any] | None) -> Request:
    """Opens a connection. `network`: how to make a private network for each gang; None: gangs get none."""
    return {"t": "hello", "version": VERSION, "network": network}


def stop(attempt: Attempt, grace: float, replicas: Iterable[ReplicaName] = ()) -> Request:
    """No `replicas`: the whole gang."""
    return {"t": "stop", "a": str(attempt), "names": [str(name) for name in replicas], "grace": grace}


def forget(attempt: Attempt, keep_workspace: bool) -> Request:
    return {"t": "forget", "a": str(attempt), "keep": keep_workspace}


def follow(attempt: Attempt, on: bool) -> Request:
    """Asks for a `grew` message whenever a log of the attempt grows, or ends that."""
    return {"t": "follow", "a": str(attempt), "on": on}


def open_shell(number: int, attempt: Attempt, replica: ReplicaName, tty: str) -> Request:
    return {"t": "shell", "id": number, "a": str(attempt), "name": str(replica), "tty": tty}


def open_socket(number: int, attempt: Attempt, family: int) -> Request:
    return {"t": "socket", "id": number, "a": str(attempt), "family": int(family)}


def service_stopping() -> Request:
    """The service stops on purpose: the supervisor need not hold its ports until the next one starts."""
    return {"t": "stopping"}


# From the supervisor to the service.


class Hello(msgspec.Struct):
    version: int
    pid: int
    limits: str
    uids: tuple[int, int] = (0, 0)
    """The first uid of jobs, and the one after the last; (0, 0): jobs have the supervisor's own uid."""


class GangClaim(msgspec.Struct):
    """A gang that the supervisor holds."""

    a: str
    note: dict[str, tuple[str, tuple[int, ...]]]
    """The address and the ports of each replica."""
    allowance: Allowance | None = None
    partial: bool = False
    """Only members that have ended are known. An earlier supervisor started the gang, and there may have been more."""
    network: bool = False
    """Whether it has a private network."""
    user: int = 0
    """The uid of its processes; 0: the supervisor's own."""
    images: list[str] = []
    """The digests of the images that it runs in."""


class ReplicaStarted(msgspec.Struct, array_like=True):
    a: str
    name: str
    pid: int
    start: int
    at: int
    slot: int
    restarts: int = 0


class ReplicaEnded(msgspec.Struct, array_like=True):
    a: str
    name: str
    at: int
    cause: str
    code: int | None
    signal: int | None
    message: str
    restarts: int = 0


class SupervisorMessage(msgspec.Struct):
    """One line from the supervisor. At most one field is set; none if only the supervisor itself needs the line."""

    hello: Hello | None = None
    claim: GangClaim | None = None
    started: ReplicaStarted | None = None
    ended: ReplicaEnded | None = None
    trimmed: tuple[str, str, int, str] | None = None
    """Attempt, replica, time, message: a log reached its limit."""
    grew: str | None = None
    """An attempt whose log has grown."""
    shell: tuple[int, int | None, str] | None = None
    """Number, exit code, error: a shell was opened (no code), could not be, or has ended."""
    socket: tuple[int, str] | None = None
    """Number, error. A descriptor comes along unless there is an error."""
    gateway: str | None = None
    """An attempt in whose network a program connects to the gateway. The descriptor of the listener comes along."""
    synced: bool = False
    """All that the supervisor holds has been sent."""
