"""The futures that callers of the controller await, with one timer for all of their time limits."""

import asyncio
from collections import deque

from turnout.errors import NotStored, TimedOut, TurnoutError
from turnout.job import Job
from turnout.store import StoreError

ANSWER_SECONDS = 10


class Answers:
    def __init__(self) -> None:
        self._pending: deque[tuple[float, asyncio.Future[Job]]] = deque()
        """With the time by the loop's clock at which each fails. The oldest first, some of them done."""
        self._timer: asyncio.TimerHandle | None = None

    def new(self) -> asyncio.Future[Job]:
        """A future that raises TimedOut unless it is done in time."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Job] = loop.create_future()
        self._forget_done()
        self._pending.append((loop.time() + ANSWER_SECONDS, future))
        if self._timer is None:
            self._timer = loop.call_later(ANSWER_SECONDS, self._fail_late)
        return future

    def _forget_done(self) -> None:
        while self._pending and self._pending[0][1].done():
            self._pending.popleft()

    def _fail_late(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        self._forget_done()
        while self._pending and self._pending[0][0] <= loop.time():
            future = self._pending.popleft()[1]
            message = f"the store did not answer within {ANSWER_SECONDS} s; the change may still happen"
            future.set_exception(TimedOut(message))
            self._forget_done()
        if self._pending:
            self._timer = loop.call_at(self._pending[0][0], self._fail_late)


def not_written(error: StoreError) -> TurnoutError:
    kind = TimedOut if isinstance(error, TimedOut) else NotStored
    return kind(f"the store could not write: {error.message}")
