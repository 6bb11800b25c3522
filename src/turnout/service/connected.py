"""Cancels work when its client disconnects."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from starlette.types import Receive

from turnout.errors import TimedOut

T = TypeVar("T")


async def while_connected(receive: Receive, work: Coroutine[None, None, T]) -> T:
    """Returns the result of `work`; cancels it and raises TimedOut if the client disconnects."""
    task = asyncio.create_task(work)
    disconnected = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait((task, disconnected), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise TimedOut("the client has disconnected")
        return task.result()
    finally:
        task.cancel()
        disconnected.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
