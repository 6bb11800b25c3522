"""Serializes writes: batches of the controller and all other changes take turns."""

import asyncio
from collections.abc import Awaitable, Callable

from turnout.store.driver import Driver, Removed, Step

Change = Callable[[], Awaitable[list[Step]]]
"""Reads what it needs and returns the steps to write, or raises a TurnoutError. May be called twice.

No other write happens between its reads and the commit.
"""

Waiting = tuple[Change, asyncio.Future[None]]

ENOUGH_ROWS = 100
"""A transaction with this many rows takes no further changes, because other writers wait for it."""


class WriteQueue:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._turn = asyncio.Lock()
        self._waiting: list[Waiting] = []
        self._task: asyncio.Task[None] | None = None
        self.removed = ""
        """The error for new writes after the database's file was removed."""

    def check_not_removed(self) -> None:
        """Call it before something new is added. Raises Removed."""
        if self.removed:
            raise Removed(self.removed)

    async def write(self, steps: list[Step]) -> None:
        """All or nothing, in a transaction of its own. Raises StoreError."""
        async with self._turn:
            await self._driver.write(steps)

    async def shrink(self) -> int:
        """See Driver.shrink."""
        async with self._turn:
            return await self._driver.shrink()

    async def change(self, change: Change) -> None:
        """On disk when it returns. Changes that wait at the same time share a transaction.

        Raises what `change` raises, or StoreError. If the caller is cancelled, the change still happens.
        """
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((change, answer))
        if self._task is None:
            self._task = asyncio.create_task(self._serve(), name="store changes")
        await answer

    async def close(self) -> None:
        """Waits until all earlier changes are written."""
        if self._task:
            await self._task

    async def _serve(self) -> None:
        try:
            while self._waiting:
                async with self._turn:
                    await self._commit(self._waiting)
        finally:
            self._task = None

    async def _commit(self, waiting: list[Waiting]) -> None:
        """Takes the changes that have waited longest from the list, as many as make a quick commit, and writes them."""
        taken: list[Waiting] = []
        try:
            steps: list[Step] = []
            while waiting and sum(len(step.rows) for step in steps) < ENOUGH_ROWS:
                taken.append(waiting.pop(0))
                steps += await taken[-1][0]()
            await self._driver.write(steps)
        except Exception as error:  # noqa: BLE001 - the caller gets any error
            if len(taken) == 1:
                _fail(taken[0][1], error)
                return
        else:
            for _, answer in taken:
                _settle(answer)
            return
        # One of them is wrong, or two of them conflict: each is tried alone.
        for change in taken:
            await self._commit([change])


def _settle(answer: asyncio.Future[None]) -> None:
    if not answer.done():
        answer.set_result(None)


def _fail(answer: asyncio.Future[None], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
