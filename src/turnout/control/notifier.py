"""Wakes the callers that wait for a change of a job. Changes are published after their commit."""

import asyncio
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager

from turnout.control.change_log import ChangeLog


class ChangeNotifier:
    def __init__(self) -> None:
        self._waiting: dict[int, set[asyncio.Event]] = {}
        self.closed = False
        self.log = ChangeLog()
        self.listener: Callable[[int], None] = lambda job_id: None
        """Called with the id of each job that is new or has changed."""

    @contextmanager
    def watch(self, job_id: int) -> Generator[asyncio.Event]:
        """An event that is set at each change of the job. Read the job after entering, not before."""
        event = asyncio.Event()
        self._waiting.setdefault(job_id, set()).add(event)
        if self.closed:
            event.set()
        try:
            yield event
        finally:
            watchers = self._waiting[job_id]
            watchers.discard(event)
            if not watchers:
                del self._waiting[job_id]

    def publish(self, job_ids: Collection[int]) -> None:
        if job_ids:
            self.log.add(job_ids)
        for job_id in job_ids:
            self._wake(job_id)
            self.listener(job_id)

    def close(self) -> None:
        """Wakes every waiting caller, because the service stops."""
        self.closed = True
        self.log.close()
        for job_id in self._waiting:
            self._wake(job_id)

    def _wake(self, job_id: int) -> None:
        for event in self._waiting.get(job_id, ()):
            event.set()
