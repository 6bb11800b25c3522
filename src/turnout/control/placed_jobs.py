"""The jobs that were placed on an engine or handed to it, with indexes: a turn looks at few of them."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator, Mapping
from heapq import merge

from turnout.control.live_job import SECOND, LiveJob
from turnout.job import State

Jobs = dict[int, LiveJob]


class PlacedJobs(Mapping[int, LiveJob]):
    def __init__(self) -> None:
        self._all: Jobs = {}
        self._by_engine = defaultdict[str, Jobs](dict)
        self._ending = defaultdict[str, Jobs](dict)
        """Jobs that have, or had, a verdict."""
        self._preemptible = defaultdict[str, dict[int, Jobs]](dict)
        """By priority."""
        self._pending = defaultdict[str, Jobs](dict)
        """Jobs that are, or were, preparing."""
        self._limited = defaultdict[str, Jobs](dict)
        """Jobs with a time limit that do not run yet."""
        self._ends = defaultdict[str, list[tuple[float, int]]](list)
        """When running jobs with a time limit end at the latest, in order, and their ids."""
        self._end_of: dict[int, float] = {}

    def __getitem__(self, job_id: int) -> LiveJob:
        return self._all[job_id]

    def __iter__(self) -> Iterator[int]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def add(self, live: LiveJob) -> None:
        job = live.job
        self._all[job.id] = self._by_engine[live.engine][job.id] = live
        if live.verdict:
            self.ends(live)
        if live.spec.policy.preemptible:
            self._preemptible[live.engine].setdefault(job.priority, {})[job.id] = live
        if job.state is State.PREPARING:
            self._pending[live.engine][job.id] = live
        self.runs(live)

    def remove(self, job_id: int) -> None:
        """Does nothing if it is not placed."""
        live = self._all.pop(job_id, None)
        if live is None:
            return
        for index in (self._by_engine, self._ending, self._pending, self._limited):
            index[live.engine].pop(job_id, None)
        self._drop_preemptible(live, live.job.priority)
        self._drop_end(live)

    def ends(self, live: LiveJob) -> None:
        """Call it when the job has got a verdict."""
        if live.job.id in self._all:
            self._ending[live.engine][live.job.id] = live

    def runs(self, live: LiveJob) -> None:
        """Call it when `running_since` has changed."""
        limit, since = live.spec.policy.time_limit, live.running_since
        if limit is None or live.job.id not in self._all:
            return
        self._drop_end(live)
        if since is None:
            self._limited[live.engine][live.job.id] = live
            return
        self._limited[live.engine].pop(live.job.id, None)
        at = self._end_of[live.job.id] = latest_end(live, since)
        insort(self._ends[live.engine], (at, live.job.id))

    def changes_priority(self, live: LiveJob, was: int) -> None:
        if live.job.id in self._all and live.spec.policy.preemptible:
            self._drop_preemptible(live, was)
            self._preemptible[live.engine].setdefault(live.job.priority, {})[live.job.id] = live

    def on(self, engine: str) -> list[LiveJob]:
        return list(self._by_engine[engine].values())

    def ending_on(self, engine: str) -> list[LiveJob]:
        """The gangs that have a verdict and still hold resources."""
        found = self._ending[engine].values()
        return [live for live in found if live.verdict is not None and live.placement]

    def preemptible_on(self, engine: str, below: int) -> list[LiveJob]:
        """The jobs of a lower priority that may be preempted."""
        found = [jobs for priority, jobs in self._preemptible[engine].items() if priority < below]
        return [live for jobs in found for live in jobs.values() if live.may_be_preempted]

    def pending_on(self, engine: str) -> list[LiveJob]:
        """The jobs that were handed to the engine and have not started there."""
        pending = self._pending[engine]
        for job_id in [job_id for job_id, live in pending.items() if live.job.state is not State.PREPARING]:
            del pending[job_id]
        return list(pending.values())

    def by_latest_end(self, engine: str, steady: int) -> Iterator[tuple[float, LiveJob]]:
        """The gangs with a time limit, and when each has ended at the latest, the first to end first."""
        starting = sorted(
            (latest_end(live, steady), job_id) for job_id, live in self._limited[engine].items()
        )
        for at, job_id in merge(self._ends[engine], starting):
            live = self._all[job_id]
            if live.placement:
                yield at, live

    def _drop_preemptible(self, live: LiveJob, priority: int) -> None:
        by_priority = self._preemptible[live.engine]
        jobs = by_priority.get(priority, {})
        if jobs.pop(live.job.id, None) and not jobs:
            del by_priority[priority]

    def _drop_end(self, live: LiveJob) -> None:
        at = self._end_of.pop(live.job.id, None)
        if at is not None:
            ends = self._ends[live.engine]
            del ends[bisect_left(ends, (at, live.job.id))]


def latest_end(live: LiveJob, since: int) -> float:
    """In seconds, by the steady clock."""
    policy = live.spec.policy
    return since / SECOND + (policy.time_limit or 0) + policy.grace
