"""Wakes the controller's loop: at once, or at a time that several inputs share."""

import asyncio
import math


class Alarm:
    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf
        """When the timer ends, by the loop's clock."""

    def ring(self) -> None:
        self._rung.set()

    def ring_at(self, when: float) -> None:
        """Rings at this time of the loop's clock, unless it is set to ring earlier."""
        loop = asyncio.get_running_loop()
        if when <= loop.time():
            self._rung.set()
        elif when < self._due:
            self._cancel()
            self._due, self._timer = when, loop.call_at(when, self._rung.set)

    async def wait(self) -> None:
        """Returns once it has rung."""
        await self._rung.wait()

    def reset(self) -> None:
        """Call it when the inputs that are there are taken."""
        self._rung.clear()
        self._cancel()

    @property
    def is_set(self) -> bool:
        return self._rung.is_set() or self._timer is not None

    def _cancel(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._due, self._timer = math.inf, None
