"""The keeper's loop: one thread, one epoll, everything that happens to a replica between claim and end."""

import contextlib
import heapq
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

from . import processes
from .cgroups import Slots
from .channel import VERSION, Channel, Message
from .journal import Journal, Line
from .logs import Log, Watcher
from .point import point
from .replica import Gang, Replica, exit_cause, first_exit, inner_pid
from .spawn import NotStarted, prepare, spawn

_LOOK_AGAIN = 0.001
_SETTLE = 0.02


class Keeper:
    """`directory` holds the journal; below `attempts` each replica has its directory."""

    def __init__(
        self, directory: str, attempts: str, listener: socket.socket, slots: Slots | None, open_files: int
    ) -> None:
        self._attempts = attempts
        self._listener = listener
        self._slots = slots
        self._open_files = open_files
        self._journal = Journal(directory)
        self._channel: Channel | None = None
        self._watcher = Watcher()
        self._gangs: dict[str, Gang] = {}
        self._tombs: set[str] = set()
        self._followed: set[str] = set()
        self._by_pid: dict[int, Replica] = {}
        self._waiting: dict[int, Replica] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_count = 0
        self._looking = 0
        self._epoll = select.epoll()
        self._ready: dict[int, Callable[[int], None]] = {}

    # The loop.

    def run(self) -> None:
        """Until nothing runs and no service is connected."""
        self._on(self._listener.fileno(), self._accept)
        self._on(self._watcher.fd, lambda _: self._watcher.ready())
        self._on(_child_signals(), self._reap)
        while self._by_pid or self._waiting or self._channel or self._awaited():
            for fd, events in self._epoll.poll(self._patience()):
                handle = self._ready.get(fd)
                if handle:
                    handle(events)
            self._fire_timers()
            self._flush()

    def _awaited(self) -> bool:
        """Before it ends for good it looks whether somebody has just knocked."""
        return bool(select.select([self._listener], [], [], 0)[0])
