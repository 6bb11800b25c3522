"""The helper process that forwards connections from a gang's network to addresses that the settings open."""

import contextlib
import os
import selectors
import signal
import socket
from collections.abc import Callable
from typing import NoReturn

from ..replicas import users
from . import namespaces

_CHUNK = 1 << 16
_MAX_CONNECTIONS = 512
"""Connections at once. Further ones wait in the queue."""

Address = tuple[str, int]


class _Direction:
    """One direction of a connection. What has been read is written before more is read."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source = source
        self.target = target
        self.waiting = b""
        self.ended = False
        """The source has no more data."""
        self.closed = False
        """The target's writing end is shut down too."""

    def read(self) -> None:
        if not self.waiting and not self.ended:
            with contextlib.suppress(BlockingIOError):
                self.waiting = self.source.recv(_CHUNK)
                self.ended = not self.waiting
        self.write()

    def write(self) -> None:
        if self.waiting:
            with contextlib.suppress(BlockingIOError):
                self.waiting = self.waiting[self.target.send(self.waiting) :]
        if self.ended and not self.waiting and not self.closed:
            self.closed = True
            self.target.shutdown(socket.SHUT_WR)


class Forwarder:
    def __init__(self, listeners: dict[socket.socket, Address]) -> None:
        self._selector = selectors.DefaultSelector()
        self._listeners = listeners
        self._accepting = False
        self._connections = 0
        self._set_accepting(True)

    def run(self) -> NoReturn:
        while True:
            for key, events in self._selector.select():
                callback: Callable[[int], None] = key.data
                callback(events)

    def _set_accepting(self, on: bool) -> None:
        if on == self._accepting:
            return
        self._accepting = on
        for listener, address in self._listeners.items():
            if on:
                self._selector.register(
                    listener,
                    selectors.EVENT_READ,
                    lambda _, listener=listener, address=address: self._accept(listener, address),
                )
            else:
                self._selector.unregister(listener)

    def _accept(self, listener: socket.socket, address: Address) -> None:
        try:
            inside, _ = listener.accept()
        except OSError:
            return
        inside.setblocking(False)
        outside = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_STREAM)
        outside.setblocking(False)
        try:
            with contextlib.suppress(BlockingIOError):
                outside.connect(address)
        except OSError:
            inside.close()
            outside.close()
            return
        self._connections += 1
        self._set_accepting(self._connections < _MAX_CONNECTIONS)
        self._watch(inside, outside)

    def _watch(self, inside: socket.socket, outside: socket.socket) -> None:
        out, back = _Direction(inside, outside), _Direction(outside, inside)
        ends = {inside: (out, back), outside: (back, out)}
        current: dict[socket.socket, int] = {}

        def ready(end: socket.socket, events: int) -> None:
            if end not in ends:
                return  # closed by the event before
            reading, writing = ends[end]
            try:
                if events & selectors.EVENT_WRITE:
                    writing.read()
                if events & selectors.EVENT_READ:
                    reading.read()
            except OSError:
                close()
                return
            if out.closed and back.closed:
                close()
            else:
                update()

        def update() -> None:
            for end, (reading, writing) in ends.items():
                events = 0 if reading.ended or reading.waiting else selectors.EVENT_READ
                events |= selectors.EVENT_WRITE if writing.waiting else 0
                self._set_events(end, events, current.get(end, 0), lambda events, end=end: ready(end, events))
                current[end] = events

        def close() -> None:
            for end in ends:
                if current.get(end):
                    self._selector.unregister(end)
                current[end] = 0
                end.close()
            if ends:
                ends.clear()
                self._connections -= 1
                self._set_accepting(True)

        update()

    def _set_events(
        self, end: socket.socket, events: int, before: int, callback: Callable[[int], None]
    ) -> None:
        if events and before:
            self._selector.modify(end, events, callback)
        elif events:
            self._selector.register(end, events, callback)
        elif before:
            self._selector.unregister(end)


def fork(listeners: list[tuple[int, Address]]) -> int:
    """Returns its process id. It ends with the supervisor at the latest, so that none is left behind."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        users.keep_capabilities(0)
        namespaces.end_with_parent()
        if os.getppid() != parent:
            return os._exit(1)  # it was killed just before
        namespaces.close_all_but([fd for fd, _ in listeners])
        sockets = {socket.socket(fileno=fd): address for fd, address in listeners}
        for listener in sockets:
            listener.setblocking(False)
        Forwarder(sockets).run()
    finally:
        os._exit(1)
