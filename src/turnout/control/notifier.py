"""Wakes the callers that wait for a change of a job. Changes are published after their commit."""

import asyncio
from collections.abc import Generator, Iterable
from contextlib import contextmanager


class ChangeNotifier:
    def __init__(self) -> None:
        self._waiting: dict[int, set[asyncio.Event]] = {}
        self.closed = False

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

    def publish(self, job_ids: Iterable[int]) -> None:
        if not self._waiting:
            return
        for job_id in job_ids:
            for event in self._waiting.get(job_id, ()):
                event.set()

    def close(self) -> None:
        """Wakes every waiting caller, because the service stops."""
        self.closed = True
        for job_id in self._waiting:
            self.publish([job_id])
