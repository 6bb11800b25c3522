"""The jobs that were placed on an engine or handed to it, with indexes: a turn looks at few of them."""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator, Mapping
from heapq import merge
from typing import NamedTuple

from turnout.control.live_job import SECOND, LiveJob
from turnout.control.node_pool import NOTHING
from turnout.job import State
from turnout.job.resources import Share

Jobs = dict[int, LiveJob]


class Usage(NamedTuple):
    """The number of jobs, and what they asked for. An oversized gang holds less than that."""

    jobs: int = 0
    share: Share = NOTHING


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
        self._used = defaultdict[str, dict[str, Usage]](dict)
        """By project and engine."""
        self._used_by_owner: dict[str, Usage] = {}

    def __getitem__(self, job_id: int) -> LiveJob:
        return self._all[job_id]

    def __iter__(self) -> Iterator[int]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def add(self, live: LiveJob) -> None:
        job = live.job
        if job.id not in self._all:
            self._use(live, 1)
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
        self._use(live, -1)
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

    def used_by(self, project: str) -> Usage:
        """What its placed jobs use on all engines."""
        usages = self._used.get(project, {}).values()
        return Usage(sum(one.jobs for one in usages), sum((one.share for one in usages), NOTHING))

    def used_by_owner(self, owner: str) -> Usage:
        """What the placed jobs of a key use on all engines."""
        return self._used_by_owner.get(owner, Usage())

    def used_on(self, engine: str, project: str) -> Usage:
        return self._used.get(project, {}).get(engine, Usage())

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

    def _use(self, live: LiveJob, sign: int) -> None:
        by_engine = self._used[live.job.project]
        _add(by_engine, live.engine, live, sign)
        if not by_engine:
            del self._used[live.job.project]
        _add(self._used_by_owner, live.job.owner, live, sign)

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


def _add(usages: dict[str, Usage], key: str, live: LiveJob, sign: int) -> None:
    jobs, share = usages.get(key, Usage())
    for count, one in live.parts:
        share += one.times(sign * count)
    if jobs + sign:
        usages[key] = Usage(jobs + sign, share)
    else:
        del usages[key]


def latest_end(live: LiveJob, since: int) -> float:
    """In seconds, by the steady clock."""
    policy = live.spec.policy
    return since / SECOND + (policy.time_limit or 0) + policy.grace
