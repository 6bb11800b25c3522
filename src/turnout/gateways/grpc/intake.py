"""Limits how many messages are received at once: the size of a message is unknown until it has arrived."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from turnout.errors import Busy

MAX_MESSAGES = 4
MAX_PROJECT_MESSAGES = 2
"""The maximum number of messages that one project sends at once."""
SMALL = 64 << 10
"""A message that is no larger counts only until it has arrived; a larger one until its call is answered."""
SECONDS = 60
SLOW_SECONDS = 5.0
"""A caller that takes longer to send a message may be refused while others wait."""


class Intake:
    """`give_back` is called when the last of several messages is released, if one of them was large."""

    def __init__(self, give_back: Callable[[], None] = lambda: None) -> None:
        self._held: dict[MessageSlot, None] = {}
        """The slots in use, the oldest first."""
        self._waiting: deque[tuple[MessageSlot, asyncio.Future[None]]] = deque()
        self._large = False
        self._give_back = give_back
        self._timer: asyncio.TimerHandle | None = None

    def slot(self, project: str) -> "MessageSlot":
        return MessageSlot(self, project)

    async def enter(self, slot: "MessageSlot") -> None:
        if not self._may_enter(slot):
            waiter = slot, asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            self._interrupt_slow()
            try:
                await waiter[1]
            except asyncio.CancelledError:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)
                else:
                    self.leave(slot)
                raise
        else:
            self._held[slot] = None

    def leave(self, slot: "MessageSlot") -> None:
        if slot not in self._held:
            return
        del self._held[slot]
        self._large = self._large or slot.large
        for waiter in list(self._waiting):
            if self._may_enter(waiter[0]) and not waiter[1].done():
                self._waiting.remove(waiter)
                self._held[waiter[0]] = None
                waiter[1].set_result(None)
        if self._large and not self._held:
            self._large = False
            # Call it a moment later, when the message itself is freed.
            asyncio.get_running_loop().call_later(0.1, self._give_back)

    def _may_enter(self, slot: "MessageSlot") -> bool:
        of_project = sum(held.project == slot.project for held in self._held)
        return len(self._held) < MAX_MESSAGES and of_project < MAX_PROJECT_MESSAGES

    def _interrupt_slow(self) -> None:
        """Interrupts a slow sender for each waiting one. Repeats that as long as senders wait."""
        if self._timer:
            self._timer.cancel()
        self._timer = None
        now = asyncio.get_running_loop().time()
        slow = [sender for sender in self._held if sender.slow(now)]
        for sender in slow[: len(self._waiting)]:
            sender.interrupt()
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(SLOW_SECONDS / 4, self._interrupt_slow)


class MessageSlot:
    """One message: `async with` around its call, `receive` for the message itself."""

    def __init__(self, intake: Intake, project: str) -> None:
        self.project = project
        self.large = False
        self._intake = intake
        self._began = 0.0
        self._clock: asyncio.Timeout | None = None
        self._interrupted = False

    async def __aenter__(self) -> Self:
        await self._intake.enter(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._intake.leave(self)

    async def receive(self, read: Callable[[], Awaitable[bytes]]) -> bytes:
        """The message that `read` waits for. Raises Busy if it is too slow."""
        self._began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(SECONDS) as self._clock:
                message = await read()
        except TimeoutError:
            if self._interrupted:
                raise Busy("the message came too slowly while others waited: send it again") from None
            raise Busy(f"the message did not arrive within {SECONDS} seconds") from None
        finally:
            self._clock = None
        self.large = len(message) > SMALL
        if not self.large:
            self._intake.leave(self)
        return message

    def slow(self, now: float) -> bool:
        return self._clock is not None and now - self._began > SLOW_SECONDS

    def interrupt(self) -> None:
        if self._clock:
            self._interrupted = True
            self._clock.reschedule(0)
