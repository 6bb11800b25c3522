"""Several hands at one heap of work, and work that belongs on a thread."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

_threads = ThreadPoolExecutor(4, "stage")


async def each(source: AsyncIterator[T], work: Callable[[T], Awaitable[None]], hands: int) -> None:
    """`work` on everything that `source` gives; the first that fails ends it all."""
    heap: asyncio.Queue[list[T]] = asyncio.Queue(hands * 2)

    async def hand() -> None:
        while one := await heap.get():
            await work(one[0])
        await heap.put([])

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(hands):
                group.create_task(hand())
            async for one in source:
                await heap.put([one])
            await heap.put([])
    except ExceptionGroup as several:
        raise several.exceptions[0] from None


async def on_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Whoever is cancelled meanwhile still waits for it: the thread uses what would be closed next."""
    future = asyncio.get_running_loop().run_in_executor(_threads, work, *arguments)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        future.exception()
        raise


async def aside(work: Callable[..., T], *arguments: Any) -> T:
    """On a thread of its own. Whoever is cancelled meanwhile leaves it behind: it may wait for a silent store."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work(*arguments))
        except BaseException as error:  # noqa: BLE001 - whoever waits is told
            future.set_exception(error)

    threading.Thread(target=run, name="aside", daemon=True).start()
    return await asyncio.wrap_future(future)


class Hands:
    """Threads for work that may wait for a silent store: several at a time, and left behind if nobody wants it now."""

    def __init__(self, most: int) -> None:
        self._threads = ThreadPoolExecutor(most, "hands")

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def leave(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
