"""The last change of each recently changed job, numbered, so that readers can continue where they were."""

import asyncio
from collections.abc import Iterable

_MOST = 20_000
"""Jobs that are remembered."""


class ChangeLog:
    def __init__(self, most: int = _MOST) -> None:
        self.number = 0
        """Of the last change."""
        self.closed = False
        self._most = most
        self._last: dict[int, int] = {}
        """Job id → the number of its last change, in the order of the numbers."""
        self._forgotten = 0
        """The largest number that is not remembered any more."""
        self._changed = asyncio.Event()

    def add(self, job_ids: Iterable[int]) -> None:
        for job_id in job_ids:
            self.number += 1
            self._last.pop(job_id, None)
            self._last[job_id] = self.number
        while len(self._last) > self._most:
            self._forgotten = self._last.pop(next(iter(self._last)))
        self._wake()

    def since(self, number: int, most: int) -> list[tuple[int, int]] | None:
        """(number, job id) of up to `most` jobs that changed after that number, in order.

        A job is there once, with its last change. None if some were forgotten.
        """
        if number < self._forgotten or number > self.number:
            return None
        found: list[tuple[int, int]] = []
        for job_id, last in reversed(self._last.items()):
            if last <= number:
                break
            found.append((last, job_id))
        return found[::-1][:most]

    async def wait(self, number: int) -> None:
        """Returns once there is a change after that number, or the service stops."""
        while self.number <= number and not self.closed:
            await self._changed.wait()

    def close(self) -> None:
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
