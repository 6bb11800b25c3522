"""Concurrent workers on one queue, and work on threads."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

_threads = ThreadPoolExecutor(4, "stage")


async def for_each(source: AsyncIterator[T], work: Callable[[T], Awaitable[None]], workers: int) -> None:
    """Run `work` on every item of `source`; the first error cancels the rest and is raised."""
    queue: asyncio.Queue[list[T]] = asyncio.Queue(workers * 2)

    async def worker() -> None:
        while entry := await queue.get():
            await work(entry[0])
        await queue.put([])

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(worker())
            async for item in source:
                await queue.put([item])
            await queue.put([])
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def on_thread(work: Callable[..., T], *arguments: Any) -> T:
    """A cancelled caller still waits for the thread, which uses files that would be closed next."""
    future = asyncio.get_running_loop().run_in_executor(_threads, work, *arguments)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        future.exception()
        raise


async def on_detached_thread(work: Callable[..., T], *arguments: Any) -> T:
    """On a new thread. A cancelled caller does not wait for it: it may wait for an unresponsive store."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work(*arguments))
        except BaseException as error:  # noqa: BLE001 - raised where the future is awaited
            future.set_exception(error)

    threading.Thread(target=run, name="detached", daemon=True).start()
    return await asyncio.wrap_future(future)


class WorkerThreads:
    """Threads for work that may wait for an unresponsive store; `abandon` does not wait for them."""

    def __init__(self, most: int) -> None:
        self._threads = ThreadPoolExecutor(most, "stager")

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def abandon(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
