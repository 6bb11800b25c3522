"""Limits the concurrent transfers and their memory over all orders, first come, first served."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

TRANSFERS = 16
MEMORY = 32 << 20
"""Bytes of objects and files that are in memory as a whole."""
UPLOADS = 4
"""Concurrent multipart uploads, which hold more memory."""


class TransferBudget:
    """An order has at most TRANSFERS waiting requests, so no order can crowd out another."""

    def __init__(self, transfers: int = TRANSFERS, memory: int = MEMORY) -> None:
        self._transfers = transfers
        self._memory = memory
        self._all_memory = memory
        self.uploads = asyncio.Semaphore(UPLOADS)
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def reserve(self, memory: int) -> AsyncIterator[None]:
        memory = min(memory, self._all_memory)
        await self._acquire(memory)
        try:
            yield
        finally:
            self._transfers += 1
            self._memory += memory
            self._admit()

    async def _acquire(self, memory: int) -> None:
        admitted = asyncio.get_running_loop().create_future()
        self._waiting.append((memory, admitted))
        self._admit()
        try:
            await admitted
        except asyncio.CancelledError:
            if admitted.done() and not admitted.cancelled():
                self._transfers += 1
                self._memory += memory
            self._admit()
            raise

    def _admit(self) -> None:
        while self._waiting:
            memory, admitted = self._waiting[0]
            if not admitted.cancelled():
                if not self._transfers or memory > self._memory:
                    return
                self._transfers -= 1
                self._memory -= memory
                admitted.set_result(None)
            self._waiting.popleft()
