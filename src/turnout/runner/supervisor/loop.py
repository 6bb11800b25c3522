"""An event loop: one thread, one epoll. It calls back when a file is ready or a time has come."""

import heapq
import select
import time
import traceback
from collections.abc import Callable

from .diagnostics import log_message, run_safely

READ = select.EPOLLIN
WRITE = select.EPOLLOUT
EDGE = select.EPOLLET

_LONGEST_WAIT = 60.0
"""Seconds. The kernel keeps a wait as an int of milliseconds, and does not count while the machine sleeps."""
_PAUSE = 1.0
"""How long a file is ignored after its callback has failed. Otherwise it would be called again at once, for ever."""
_FEW_CANCELLED = 64


def steady_clock() -> float:
    """Seconds since the boot. This clock cannot be set, and it counts while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Timer:
    """What `call_later` returns. It releases its callback when it is called or cancelled."""

    __slots__ = ("_loop", "callback")

    def __init__(self, loop: "Loop", callback: Callable[[], None]) -> None:
        self._loop = loop
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self._loop.on_cancel()


class Loop:
    """An exception in a callback is logged and ends only that callback."""

    def __init__(self, clock: Callable[[], float] = steady_clock) -> None:
        self.clock = clock
        self._epoll = select.epoll()
        self._ready: dict[int, Callable[[], None]] = {}
        self._events: dict[int, int] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self._cancelled = 0
        self._count = 0

    def add(self, fd: int, callback: Callable[[], None], events: int = READ) -> None:
        self._epoll.register(fd, events)
        self._ready[fd], self._events[fd] = callback, events

    def modify(self, fd: int, events: int) -> None:
        self._epoll.modify(fd, events)
        self._events[fd] = events

    def remove(self, fd: int) -> None:
        """Call this before the file is closed. Does nothing if the file is not watched."""
        if self._ready.pop(fd, None):
            del self._events[fd]
            self._epoll.unregister(fd)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(self, callback)
        self._count += 1
        heapq.heappush(self._timers, (self.clock() + seconds, self._count, timer))
        return timer

    def wake_after(self, seconds: float) -> None:
        """Makes sure that `run_once` returns after this time, so that idle work gets a chance."""
        self.call_later(seconds, lambda: None)

    @property
    def timers(self) -> int:
        return len(self._timers) - self._cancelled

    def on_cancel(self) -> None:
        """Called by a cancelled timer. Cancelled timers are removed from the heap once they are the majority."""
        self._cancelled += 1
        if self._cancelled > max(_FEW_CANCELLED, len(self._timers) // 2):
            self._timers = [entry for entry in self._timers if entry[2].callback is not None]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def run_once(self, work: Callable[[], bool], idle: Callable[[], bool]) -> None:
        """Does one piece of `work` and calls back everything that is due. If there is neither, it does `idle` work,
        then waits.

        `work` and `idle` return whether they had something to do.
        """
        worked = work()
        ready = self._epoll.poll(0)
        if not worked:
            while not ready and _ran(idle):
                ready = self._epoll.poll(0)
            ready = ready or self._epoll.poll(self._timeout())
        for fd, _ in ready:
            callback = self._ready.get(fd)
            if callback is not None and not run_safely(callback):
                self._pause(fd, callback)
        while self._timers and self._timers[0][0] <= self.clock():
            timer = heapq.heappop(self._timers)[2]
            callback, timer.callback = timer.callback, None
            if callback is None:
                self._cancelled -= 1
            else:
                run_safely(callback)

    def _pause(self, fd: int, callback: Callable[[], None]) -> None:
        if self._ready.get(fd) is not callback:
            return
        try:
            self._epoll.modify(fd, 0)
        except OSError as error:
            # It was closed, and another file may have its number by now.
            log_message(f"file {fd} is not watched any more: {error}")
            del self._ready[fd], self._events[fd]
        else:
            self.call_later(_PAUSE, lambda: self._resume(fd, callback))

    def _resume(self, fd: int, callback: Callable[[], None]) -> None:
        if self._ready.get(fd) is callback:
            self._epoll.modify(fd, self._events[fd])

    def _timeout(self) -> float:
        if not self._timers:
            return -1.0
        return min(max(0.0, self._timers[0][0] - self.clock()), _LONGEST_WAIT)


def _ran(idle: Callable[[], bool]) -> bool:
    try:
        return idle()
    except Exception:  # noqa: BLE001 as in `run_safely`
        log_message(traceback.format_exc())
        return False
