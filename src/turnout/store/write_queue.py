"""Who writes when. A database takes one transaction at a time: control's batches and all other changes take turns."""

import asyncio
from collections.abc import Awaitable, Callable

from turnout.store.driver import Driver, Step

Change = Callable[[], Awaitable[list[Step]]]
"""Looks at what is there, and says what to write; raises a TurnoutError if it cannot be. May be called twice.

Nobody writes between the look and the commit.
"""

Asked = tuple[Change, asyncio.Future[None]]


class Writing:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._turn = asyncio.Lock()
        self._waiting: list[Asked] = []
        self._task: asyncio.Task[None] | None = None

    async def write(self, steps: list[Step]) -> None:
        """All or nothing, in a transaction of its own. Raises StoreError."""
        async with self._turn:
            await self._driver.write(steps)

    async def change(self, change: Change) -> None:
        """On disk when it returns, in one transaction with others that came while it waited for its turn.

        Raises what `change` raises, or StoreError. Who gives up waiting does not stop it.
        """
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((change, answer))
        if self._task is None:
            self._task = asyncio.create_task(self._serve(), name="store changes")
        await answer

    async def close(self) -> None:
        """After what was asked for before."""
        if self._task:
            await self._task

    async def _serve(self) -> None:
        try:
            while self._waiting:
                async with self._turn:
                    asked, self._waiting = self._waiting, []
                    await self._commit(asked)
        finally:
            self._task = None

    async def _commit(self, asked: list[Asked]) -> None:
        try:
            steps: list[Step] = []
            for change, _ in asked:
                steps += await change()
            await self._driver.write(steps)
        except Exception as error:  # noqa: BLE001 - its asker gets it, whatever it is
            if len(asked) == 1:
                _fail(asked[0][1], error)
                return
        else:
            for _, answer in asked:
                _settle(answer)
            return
        # One of them cannot be, or two of them get in each other's way: each finds out by itself.
        for one in asked:
            await self._commit([one])


def _settle(answer: asyncio.Future[None]) -> None:
    if not answer.done():
        answer.set_result(None)


def _fail(answer: asyncio.Future[None], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
