"""The protocol by which a search creates, watches and stops the jobs of its trials."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from turnout.job import Job, LiveSearch, Measurement, Reason, State, Trial


class TrialRunner(Protocol):
    def live_searches(self) -> list[int]:
        """The ids of the searches that have not ended."""
        ...

    def live_search(self, job_id: int) -> LiveSearch | None:
        """None if it has ended, or if the job is not a search."""
        ...

    def watch(self, job_id: int) -> AbstractContextManager[asyncio.Event]:
        """An event that is set when the job changes. Read the job after you enter the context, not before."""
        ...

    async def create(self, search: Job, trial: Trial) -> Job:
        """Create the trial and its job in one commit. Raises WrongState if the search is ending."""
        ...

    async def lines(self, job: Job, cursor: str) -> tuple[list[tuple[int, str]], str, bool]:
        """(time, text) of the lines after the cursor, of all replicas and attempts.

        Also returns the cursor for the next lines, and whether there are no more at the moment.
        """
        ...

    def log_growth(self, job: Job) -> AsyncIterator[None]:
        """Yields when a log of the job's current attempt may have grown."""
        ...

    async def read_file(self, job: Job, path: str) -> bytes | None:
        """A file that the lead replica wrote; None if the job has no such directory. Call it before `conclude`."""
        ...

    async def stop_trial(self, trial: Trial, why: str) -> None:
        """Raises WrongState if the trial has ended."""
        ...

    async def conclude(
        self, trial: Trial, attempt: int, measurements: Sequence[Measurement], best: str
    ) -> None:
        """Store the result in `trial`. `attempt` is the last of its job; `best` describes the best trial so far."""
        ...

    async def finish(self, job_id: int, state: State, reason: Reason, message: str) -> None:
        """End the search with this outcome, and stop the trials that still run."""
        ...
