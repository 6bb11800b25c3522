"""The events of signals and of all threads, in the order in which the main thread handles them."""

from __future__ import annotations

import collections
import contextlib
import os
import select
import signal
from typing import Any, Deque, NamedTuple, Optional


class Event(NamedTuple):
    kind: str
    payload: Any = None


class Mailbox:
    def __init__(self) -> None:
        self._events: Deque[Event] = collections.deque()
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def post(self, kind: str, payload: Any = None) -> None:
        """From any thread, or from a signal handler."""
        self._events.append(Event(kind, payload))
        with contextlib.suppress(BlockingIOError):  # then it is readable anyway
            os.write(self._write, b"\0")

    def get(self, timeout: Optional[float]) -> Optional[Event]:
        """The next event; None after the timeout, or if only a child has ended."""
        if not self._events:
            select.select([self._read], [], [], timeout)
            with contextlib.suppress(BlockingIOError):
                os.read(self._read, 4096)
        return self._events.popleft() if self._events else None

    def wake_on_signals(self) -> None:
        """Lets `get` return when a signal with a handler arrives."""
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
