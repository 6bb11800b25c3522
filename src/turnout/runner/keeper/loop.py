"""One thread, one epoll: calls back when a file is ready or a time has come."""

import heapq
import select
import time
from collections.abc import Callable

READ = select.EPOLLIN
WRITE = select.EPOLLOUT
EDGE = select.EPOLLET


class Loop:
    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._ready: dict[int, Callable[[], None]] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def on(self, fd: int, then: Callable[[], None], events: int = READ) -> None:
        self._epoll.register(fd, events)
        self._ready[fd] = then

    def change(self, fd: int, events: int) -> None:
        self._epoll.modify(fd, events)

    def off(self, fd: int) -> None:
        """Before the file is closed."""
        del self._ready[fd]
        self._epoll.unregister(fd)

    def later(self, seconds: float, then: Callable[[], None]) -> None:
        """There is no calling off: `then` looks whether it still has anything to do."""
        self._count += 1
        heapq.heappush(self._timers, (time.monotonic() + seconds, self._count, then))

    def turn(self, work: Callable[[], bool], idle: Callable[[], bool]) -> None:
        """One piece of `work`, and all that is due. Without either: waits, after `idle` has no more to do.

        Both say whether they had something to do.
        """
        worked = work()
        ready = self._epoll.poll(0)
        if not worked:
            while not ready and idle():
                ready = self._epoll.poll(0)
            ready = ready or self._epoll.poll(self._patience())
        for fd, _ in ready:
            then = self._ready.get(fd)
            if then is not None:
                then()
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2]()

    def _patience(self) -> float:
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else -1.0
