"""Deletes what ended gangs leave on the cluster, once no other gang has been starting for a while.

For a node, removing a pod is as much work as starting one, so a burst of short jobs would take 1.5 times as long. No
gang waits longer than `PATIENCE` for its removal. If the service ends before that, the next one finds the gang.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable

from turnout.engines import Unreachable

_log = logging.getLogger(__name__)

PATIENCE = 30.0
CALM_SECONDS = 3.0
"""How long no gang must have been starting: the last of a burst may still run, and end soon."""
_RETRY_SECONDS = 5.0
_AT_ONCE = 4


class Cleanup:
    def __init__(self, delete: Callable[[str], Awaitable[None]], is_busy: Callable[[], bool]) -> None:
        """`delete` gets a handle; it may raise Unreachable and be repeated. `is_busy`: whether a gang is starting."""
        self._delete = delete
        self._is_busy = is_busy
        self._deadlines: dict[str, float] = {}
        """By handle, on the monotonic clock; the first is the earliest."""
        self._busy_at = float("-inf")
        """When a gang was last seen starting."""
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        if self._task:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def add(self, handle: str) -> None:
        self._deadlines.setdefault(handle, time.monotonic() + PATIENCE)
        self._changed.set()

    def look_again(self) -> None:
        """Call it when gangs have changed."""
        self._changed.set()

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            due = self._due()[:_AT_ONCE]
            if not due:
                await self._wait()
            elif not all(await asyncio.gather(*(self._remove(handle) for handle in due))):
                await asyncio.sleep(_RETRY_SECONDS)

    def _due(self) -> list[str]:
        now = time.monotonic()
        if self._is_busy():
            self._busy_at = now
        if now - self._busy_at >= CALM_SECONDS:
            return list(self._deadlines)
        return [handle for handle, deadline in self._deadlines.items() if deadline <= now]

    async def _wait(self) -> None:
        first = next(iter(self._deadlines.values()), None)
        # While a gang is starting, the next look only moves `_busy_at`.
        due = None if first is None else min(first, self._busy_at + CALM_SECONDS)
        left = None if due is None else max(0.0, due - time.monotonic())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self._changed.wait()

    async def _remove(self, handle: str) -> bool:
        try:
            await self._delete(handle)
        except Unreachable:
            return False
        except Exception:  # noqa: BLE001 (the removal of all others depends on this task)
            _log.exception("%s cannot be removed", handle)
            return False
        self._deadlines.pop(handle, None)
        return True
