"""The sockets that the service listens on. The supervisor holds copies of them, so that they outlive the service.

A service that starts takes them from the running supervisor, and binds those that the supervisor does not have.
"""

import contextlib
import errno
import os
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from turnout.engines.local.supervisor.connection import connect
from turnout.engines.local.supervisor.port_holder import describe_holder
from turnout.errors import Misconfigured

BACKLOG = 4096
"""How many clients can wait while the service restarts, if the kernel allows that many (net.core.somaxconn)."""

_ANSWER_SECONDS = 10
_MOST_DESCRIPTORS = 32
_LARGEST_REPLY = 1 << 16


class Port(NamedTuple):
    name: str
    """What the port is for."""
    host: str
    port: int
    setting: str
    """The option to change if the port is not available."""
    handed_on: bool = False
    """Whether a child process of the service accepts its connections."""

    @property
    def key(self) -> tuple[str, str, int]:
        return self.name, self.host, self.port


class _HeldSockets(msgspec.Struct):
    held: list[tuple[str, str, int]] | None = None


class Listeners:
    """`tls`: certificate and key as PEM. `wait_seconds`: how long clients wait while no service runs."""

    def __init__(
        self, ports: Iterable[Port], tls: tuple[str, str] | None = None, wait_seconds: float = 30
    ) -> None:
        self._ports = list(ports)
        self._sockets: dict[Port, socket.socket] = {}
        self._tls = tls
        self._wait_seconds = wait_seconds

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for listener in self._sockets.values():
            listener.close()

    @property
    def listening(self) -> list[socket.socket]:
        """The sockets that the service itself accepts from, in the order of the ports."""
        return [self._sockets[port] for port in self._ports if not port.handed_on]

    def descriptor(self, name: str) -> int:
        """The descriptor of the socket of this name."""
        return next(found.fileno() for port, found in self._sockets.items() if port.name == name)

    def take(self, supervisor: Path) -> None:
        """Takes the sockets that the supervisor of this directory holds. It closes those that are no longer wanted."""
        wanted = {port.key: port for port in self._ports if port not in self._sockets}
        for key, found in _take(supervisor, list(wanted)):
            # Earlier versions reserved gRPC's port with a socket that does not listen.
            found.listen(BACKLOG)
            self._sockets[wanted[key]] = found

    def bind(self) -> None:
        """Binds the ports that were not taken from a supervisor. Raises Misconfigured."""
        for port in self._ports:
            if port not in self._sockets:
                self._sockets[port] = _bind(port)

    def send(self, connection: socket.socket, before: bytes) -> None:
        """Sends copies to the supervisor, after the line `before`. Raises OSError."""
        message = {
            "t": "hold",
            "sockets": [port.key for port in self._sockets],
            "tls": self._tls is not None,
            "patience": self._wait_seconds,
        }
        with contextlib.ExitStack() as files:
            fds = [listener.fileno() for listener in self._sockets.values()]
            fds += [files.enter_context(_memory_file(text)) for text in self._tls or ()]
            socket.send_fds(connection, [before + msgspec.json.encode(message) + b"\n"], fds)


def _take(
    supervisor: Path, wanted: list[tuple[str, str, int]]
) -> list[tuple[tuple[str, str, int], socket.socket]]:
    connection = connect(supervisor) if supervisor.exists() else None
    if connection is None:
        return []
    with connection:
        connection.settimeout(_ANSWER_SECONDS)
        try:
            connection.sendall(msgspec.json.encode({"t": "take", "wanted": wanted}) + b"\n")
            # A supervisor that holds no listeners closes the connection without a reply.
            connection.shutdown(socket.SHUT_WR)
            names, fds = _receive_held(connection)
        except OSError:
            return []
    sockets = [socket.socket(fileno=fd) for fd in fds]
    return list(zip(names, sockets, strict=True))


def _receive_held(connection: socket.socket) -> tuple[list[tuple[str, str, int]], list[int]]:
    """Names and descriptors. Reports about running jobs may come before the answer, and after it."""
    fds: list[int] = []
    line = b""
    while True:
        data, new, _, _ = socket.recv_fds(
            connection, _LARGEST_REPLY, _MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
        )
        fds += new
        *lines, line = (line + data).split(b"\n")
        for one in lines:
            held = msgspec.json.decode(one, type=_HeldSockets).held
            if held is not None:
                return held, fds
        if not data:
            return [], fds


def _bind(port: Port) -> socket.socket:
    family = socket.AF_INET6 if ":" in port.host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((port.host, port.port))
        found.listen(BACKLOG)
    except OSError as error:
        found.close()
        raise Misconfigured(f"cannot listen on {port.host}:{port.port}: {_obstacle(error, port)}") from None
    return found


def _obstacle(error: OSError, port: Port) -> str:
    """Why the port cannot be bound, and what to change."""
    host, setting = port.host, port.setting
    if isinstance(error, socket.gaierror):
        return f"{host} is not known; give --host an address of this machine, such as 127.0.0.1"
    match error.errno:
        case errno.EADDRNOTAVAIL:
            return f"{host} is not an address of this machine; give --host one that is, such as 127.0.0.1"
        case errno.EADDRINUSE:
            return f"the port is taken{describe_holder(port.port)}, or give {setting} another number"
        case errno.EACCES:
            return f"only root can listen on ports below 1024; give {setting} another number"
        case _:
            return f"{error.strerror}; give --host or {setting} another value"


@contextlib.contextmanager
def _memory_file(text: str) -> Iterator[int]:
    """A descriptor of a file that is never written to disk."""
    fd = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        os.write(fd, text.encode())
        yield fd
    finally:
        os.close(fd)
