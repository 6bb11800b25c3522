"""Tells readers of a log when it may have grown."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from turnout.engines import Unreachable
from turnout.engines.local.supervisor import messages
from turnout.job import Attempt


class LogFollowers:
    """`send` takes a message to the supervisor."""

    def __init__(self, send: Callable[[object], None]) -> None:
        self._send = send
        self._events: dict[Attempt, set[asyncio.Event]] = {}

    async def follow(self, attempt: Attempt) -> AsyncIterator[None]:
        """Yields whenever a log of the attempt may have grown. Several changes may be one."""
        event = asyncio.Event()
        events = self._events.setdefault(attempt, set())
        events.add(event)
        try:
            if len(events) == 1:
                self._subscribe(attempt, True)
            # The supervisor does not report what was written before it got the subscription.
            event.set()
            while True:
                await event.wait()
                event.clear()
                yield
        finally:
            events.discard(event)
            if not events and self._events.pop(attempt, None) is not None:
                self._subscribe(attempt, False)

    def notify(self, attempt: Attempt) -> None:
        for event in self._events.get(attempt, ()):
            event.set()

    def resubscribe(self) -> None:
        """After a new connection to the supervisor."""
        for attempt in self._events:
            self._subscribe(attempt, True)

    def _subscribe(self, attempt: Attempt, on: bool) -> None:
        # After a lost connection, `resubscribe` is called.
        with contextlib.suppress(Unreachable):
            self._send(messages.follow(attempt, on))
