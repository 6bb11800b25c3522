"""What a search needs of the rest of the house: somebody who makes jobs of trials, watches and ends them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from turnout.job import Job, Measurement, Reason, State, Trial


class Hands(Protocol):
    def searching(self) -> list[int]:
        """The searches that are live."""
        ...

    def watch(self, job_id: int) -> AbstractContextManager[asyncio.Event]:
        """An event that is set at each change of the job. Read the job after entering, not before."""
        ...

    async def create(self, search: Job, trial: Trial) -> Job:
        """The trial and the job that tries it, in one commit. Raises WrongState if the search wants no more."""
        ...

    async def lines(self, job: Job, cursor: str) -> tuple[list[tuple[int, str]], str, bool]:
        """What its replicas have printed, when and what, in all attempts, from the cursor on.

        Then where the next lines begin, and whether there are none at the moment.
        """
        ...

    def grown(self, job: Job) -> AsyncIterator[None]:
        """Yields whenever a log of the job's current attempt may have grown."""
        ...

    async def written(self, job: Job, path: str) -> bytes | None:
        """The lead's file at `path`, as long as the trial is not concluded; None: the job has no such place."""
        ...

    async def stop_trial(self, trial: Trial, why: str) -> None:
        """Raises WrongState if it is over."""
        ...

    async def conclude(
        self, trial: Trial, attempt: int, measurements: Sequence[Measurement], best: str
    ) -> None:
        """How it did is in the trial. `attempt` is the last of its job; `best` names the best so far."""
        ...

    async def finish(self, job_id: int, state: State, reason: Reason, message: str) -> None:
        """The search tries no more, and this is what it has come to. What still runs is ended."""
        ...
