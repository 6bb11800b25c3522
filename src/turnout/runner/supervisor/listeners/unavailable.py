"""Answers 503 with Retry-After while the service is not running. All buffers and counts are bounded."""

import socket
import time
from collections.abc import Callable

from ..loop import READ, Loop

RETRY_SECONDS = 5

_TEXT = b"The service is not running at the moment. Its jobs go on. Try again in a few seconds.\n"
_HEAD = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n"
    b"Retry-After: %d\r\nConnection: close\r\n\r\n" % (len(_TEXT), RETRY_SECONDS)
)
_MAX_HEAD = 32 << 10
_CHUNK = 32 << 10
_MAX_ACCEPTS = 16
"""In one round of the loop."""
_QUIET_SECONDS = 5.0
_MAX_SECONDS = 30.0
_PAUSE = 1.0


class Connection:
    """Reads the head of a request, answers, and drops what else comes. To close earlier would reset the connection and
    lose the answer.
    """

    max_connections = 256
    """Limit on open connections of this kind."""

    def __init__(self, peer: socket.socket) -> None:
        peer.setblocking(False)
        self.peer = peer
        self._head = bytearray()
        self._replied = False
        self._began = self._last_read = time.monotonic()

    def expired(self, now: float) -> bool:
        return now - self._last_read > _QUIET_SECONDS or now - self._began > _MAX_SECONDS

    def step(self) -> int:
        """Handles input. Returns the events to wait for next; 0: done."""
        try:
            return READ if self.read() else 0
        except BlockingIOError:
            return READ
        except OSError:
            return 0

    def read(self) -> bool:
        """False at the end of the input."""
        data = self.peer.recv(_CHUNK)
        if data and not self._replied:
            self._head += data
            if b"\r\n\r\n" in self._head or len(self._head) > _MAX_HEAD:
                self._reply()
        self._last_read = time.monotonic()
        return bool(data)

    def _reply(self) -> None:
        """A few hundred bytes fit into the empty buffer, or the client is gone."""
        self._replied = True
        self.peer.send(_HEAD if self._head.startswith(b"HEAD ") else _HEAD + _TEXT)
        self._head.clear()
        self.end_writing()

    def end_writing(self) -> None:
        self.peer.shutdown(socket.SHUT_WR)


NewConnection = Callable[[socket.socket], Connection]


class UnavailableResponder:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._listeners: list[socket.socket] = []
        self._connect: NewConnection = Connection
        self._connections: dict[int, Connection] = {}
        """By descriptor, the oldest first."""
        self._sweeping = False

    def start(self, listeners: list[socket.socket], connect: NewConnection) -> None:
        self._listeners, self._connect = listeners, connect
        for listener in listeners:
            listener.setblocking(False)
            self._loop.add(listener.fileno(), lambda listener=listener: self._accept(listener))

    def stop(self) -> None:
        """Accepts no more connections. Those that are open get their answer."""
        for listener in self._listeners:
            self._loop.remove(listener.fileno())
        self._listeners = []

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_MAX_ACCEPTS):
            try:
                peer, _ = listener.accept()
            except BlockingIOError:
                return
            except OSError:
                # For example, no descriptors are left. Clients wait.
                self._pause(listener)
                return
            self._add(peer)

    def _pause(self, listener: socket.socket) -> None:
        self._loop.modify(listener.fileno(), 0)
        self._loop.call_later(_PAUSE, lambda: self._resume(listener))

    def _resume(self, listener: socket.socket) -> None:
        if listener in self._listeners:
            self._loop.modify(listener.fileno(), READ)

    def _add(self, peer: socket.socket) -> None:
        try:
            connection = self._connect(peer)
        except OSError:  # the client is gone already
            peer.close()
            return
        while len(self._connections) >= connection.max_connections:
            # A slow client must not block the others.
            self._close(next(iter(self._connections)))
        fd = connection.peer.fileno()
        self._connections[fd] = connection
        self._loop.add(fd, lambda: self._step(fd))
        if not self._sweeping:
            self._sweeping = True
            self._loop.call_later(_PAUSE, self._sweep)

    def _step(self, fd: int) -> None:
        if events := self._connections[fd].step():
            self._loop.modify(fd, events)
        else:
            self._close(fd)

    def _close(self, fd: int) -> None:
        self._loop.remove(fd)
        self._connections.pop(fd).peer.close()

    def _sweep(self) -> None:
        now = time.monotonic()
        for fd in [fd for fd, connection in self._connections.items() if connection.expired(now)]:
            self._close(fd)
        self._sweeping = bool(self._connections)
        if self._sweeping:
            self._loop.call_later(_PAUSE, self._sweep)
