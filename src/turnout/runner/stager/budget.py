"""How much is under way at a time, over all orders: first come, first served."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

TRANSFERS = 16
MEMORY = 32 << 20
"""Of what is in memory as a whole."""
UPLOADS = 4
"""In parts, each of which holds some more."""


class Room:
    """An order waits with at most as many transfers as there are places: none can crowd out another."""

    def __init__(self, transfers: int = TRANSFERS, memory: int = MEMORY) -> None:
        self._transfers = transfers
        self._memory = memory
        self._all_memory = memory
        self.uploads = asyncio.Semaphore(UPLOADS)
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def take(self, memory: int) -> AsyncIterator[None]:
        memory = min(memory, self._all_memory)
        await self._enter(memory)
        try:
            yield
        finally:
            self._transfers += 1
            self._memory += memory
            self._admit()

    async def _enter(self, memory: int) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((memory, turn))
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._transfers += 1
                self._memory += memory
            self._admit()
            raise

    def _admit(self) -> None:
        while self._waiting:
            memory, turn = self._waiting[0]
            if not turn.cancelled():
                if not self._transfers or memory > self._memory:
                    return
                self._transfers -= 1
                self._memory -= memory
                turn.set_result(None)
            self._waiting.popleft()
