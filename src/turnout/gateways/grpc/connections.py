"""Accepts connections to the port and relays them to gRPC's server, which cannot take over a listening socket.

gRPC listens on a Unix socket whose name is removed at once: only this process can connect to it.
"""

import asyncio
import contextlib
import os
import socket
import tempfile
from collections.abc import Callable
from typing import NamedTuple

MAX_CONNECTIONS = 512
"""The maximum number of open connections. Each may fill buffers of 64 KB."""
_BACKLOG = 4096
_BUFFER = 64 << 10

Address = tuple[str, int]


class Ends(NamedTuple):
    """The two addresses of a connection."""

    client: Address
    server: Address


class Connections:
    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._inner = -1
        self._server: asyncio.Server | None = None
        self._open: dict[str, _Client] = {}
        """Clients by gRPC's name for the connection, the one that has been silent longest first."""

    def bind(self, add_port: Callable[[str], int]) -> None:
        """`add_port` makes gRPC listen on an address."""
        directory = tempfile.mkdtemp(prefix="turnout-grpc-")
        path = os.path.join(directory, "socket")
        try:
            add_port(f"unix:{path}")
            self._inner = os.open(path, os.O_PATH | os.O_CLOEXEC)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            os.rmdir(directory)

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self._listener.setblocking(False)
        self._server = await loop.create_server(lambda: _Client(self), sock=self._listener, backlog=_BACKLOG)

    def refuse_new(self) -> None:
        if self._server:
            self._server.close()

    def close(self) -> None:
        for client in list(self._open.values()):
            self.lost(client)
        os.close(self._inner)

    def ends(self, peer: str) -> Ends | None:
        """The ends of the connection that gRPC calls `unix-abstract:7a2f8`; None if it is closed."""
        client = self._open.get(peer)
        return client.ends if client else None

    def trust(self, peer: str) -> None:
        """Marks the connection as one of a known caller. When there are too many, others are closed first."""
        if client := self._open.get(peer):
            client.known = True

    async def connect(self, client: "_Client") -> None:
        """Connects the client to gRPC. Closes another connection if there are too many."""
        if len(self._open) >= MAX_CONNECTIONS:
            strangers = (other for other in self._open.values() if not other.known)
            self.lost(next(strangers, next(iter(self._open.values()))))
        loop = asyncio.get_running_loop()
        inner = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            inner.setblocking(False)
            inner.bind(b"")  # the kernel chooses a name
            client.name = f"unix-abstract:{inner.getsockname()[1:].decode()}"
            self._open[client.name] = client
            await loop.sock_connect(inner, f"/proc/self/fd/{self._inner}")
            await loop.create_unix_connection(lambda: client.inner, sock=inner)
        except OSError:
            inner.close()
            self.lost(client)
            return
        client.begin()

    def received(self, client: "_Client") -> None:
        if self._open.pop(client.name, None):
            self._open[client.name] = client

    def lost(self, client: "_Client") -> None:
        self._open.pop(client.name, None)
        client.close()
        client.inner.close()


class _End(asyncio.Protocol):
    """One end of a relayed connection. It reads no faster than the other end can write."""

    transport: asyncio.Transport
    other: "_End"

    def __init__(self) -> None:
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(_BUFFER)
        self.transport = transport
        if self.closed:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        self.other.transport.write(data)

    def pause_writing(self) -> None:
        self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.close()
        self.other.close()

    def close(self) -> None:
        """Data that was already written is still sent."""
        if not self.closed:
            self.closed = True
            if transport := getattr(self, "transport", None):
                transport.close()


class _Client(_End):
    def __init__(self, connections: Connections) -> None:
        super().__init__()
        self.name = ""
        self.known = False
        self.inner = self.other = _End()
        self.inner.other = self
        self._connections = connections
        self._early: bytes | None = b""
        """Data that arrived before the connection to gRPC was open."""
        self._connecting: asyncio.Task[None] | None = None

    @property
    def ends(self) -> Ends | None:
        client = self.transport.get_extra_info("peername")
        server = self.transport.get_extra_info("sockname")
        return Ends(client[:2], server[:2]) if client and server else None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connecting = asyncio.ensure_future(self._connections.connect(self))

    def begin(self) -> None:
        """Starts the relay, when the connection to gRPC is open."""
        if self.closed:
            self.inner.close()
            return
        self._early, early = None, self._early
        if early:
            super().data_received(early)
        self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        self._connections.received(self)
        if self._early is None:
            super().data_received(data)
        else:
            self._early += data
            # Not in connection_made: there Python 3.11 reads once more before it pauses.
            self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._connections.lost(self)
