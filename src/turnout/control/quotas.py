"""Quotas and fair share: what each project and key uses, whether a job exceeds a quota, and whose turn it is."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from turnout.control.live_job import LiveJob
from turnout.control.live_jobs import LiveJobs
from turnout.control.node_pool import NOTHING
from turnout.control.placed_jobs import Usage
from turnout.control.queue import QueueEntry
from turnout.errors import OverQuota
from turnout.job import Job
from turnout.job.resources import CORE, GIB, Parts, Share
from turnout.projects import KeyQuota

Order = tuple[bool, int, bool, float, int]
"""Sorts first what starts first: an entry's rank, with what its project uses between priority and age."""


class _Limit(NamedTuple):
    amount: float
    used: float
    needed: float
    text: str
    """The amount in words, such as `2 GPUs`."""


class _Quota(NamedTuple):
    """A quota that applies to a job."""

    kind: str
    """`project` or `key`."""
    name: str
    limits: KeyQuota
    table_of: Callable[[str], str]
    used_by: Callable[[str], Usage]
    waiting_of: Callable[[str], int]

    @property
    def whose(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def table(self) -> str:
        """The name of its table in the settings."""
        return self.table_of(self.name)


def check_at_create(live_jobs: LiveJobs, live: LiveJob, *, is_trial: bool) -> None:
    """Raises OverQuota for a gang that can never start, and when too many jobs of its project or key wait.

    A trial belongs to a search that was admitted, so the number of waiting jobs never refuses it.
    """
    for quota in _quotas(live_jobs, live.job):
        for limit in _limits(quota.limits, 0, NOTHING, live.parts):
            if limit.needed > limit.amount:
                raise OverQuota(
                    f"{quota.whose} may use at most {limit.text} at a time ({quota.table} in the settings), "
                    "and this job alone asks for more: ask for less, or have the quota raised"
                )
        most = quota.limits.waiting
        if most is not None and not is_trial and quota.waiting_of(quota.name) >= most:
            raise OverQuota(
                f"{quota.whose} already has {most} waiting job{'s' if most != 1 else ''} and may have no more "
                f"({quota.table} waiting in the settings): try again when some have started or were deleted"
            )


def over_quota(live_jobs: LiveJobs, live: LiveJob) -> str:
    """Why the quota of its project or key does not let it start now; empty: it does."""
    exceeded = _exceeded(live_jobs, live)
    if exceeded is None:
        return ""
    quota, limit = exceeded
    return (
        f"The quota of {quota.whose} is used up: it may use {limit.text} at a time "
        f"({quota.table} in the settings). It starts when enough jobs of the {quota.kind} "
        "have ended."
    )


def quota_in_a_line(live_jobs: LiveJobs, live: LiveJob) -> str:
    """As `over_quota`, in a few words."""
    exceeded = _exceeded(live_jobs, live)
    return f"the quota of {exceeded[0].whose} ({exceeded[1].text}) is used up" if exceeded else ""


def _exceeded(live_jobs: LiveJobs, live: LiveJob) -> tuple[_Quota, _Limit] | None:
    for quota in _quotas(live_jobs, live.job):
        if not quota.limits.limits_running:
            continue
        used = quota.used_by(quota.name)
        for limit in _limits(quota.limits, used.jobs, used.share, live.parts):
            if limit.used + limit.needed > limit.amount:
                return quota, limit
    return None


def _quotas(live_jobs: LiveJobs, job: Job) -> Iterator[_Quota]:
    quotas, placed = live_jobs.quotas, live_jobs.placed
    mine = quotas.of(job.project)
    yield _Quota("project", job.project, mine, quotas.table, placed.used_by, live_jobs.waiting)
    if mine := quotas.of_key(job.owner):
        waiting = live_jobs.waiting_of_owner
        yield _Quota("key", job.owner, mine, quotas.key_table, placed.used_by_owner, waiting)


def order_of(live_jobs: LiveJobs, engine: str, entry: QueueEntry) -> Order:
    """The order at equal priority: first the project that uses the least for its weight.

    The project of the head keeps its turn until the head has started: otherwise small jobs of other projects could
    start before a large one for ever.
    """
    not_front, minus_priority, job_id = entry.rank
    head = live_jobs.heads.get(engine, 0)
    keeps_turn = head in live_jobs.queues[engine] and live_jobs.jobs[head].job.project == entry.project
    return not_front, minus_priority, not keeps_turn, _used(live_jobs, engine, entry.project), job_id


def _used(live_jobs: LiveJobs, engine: str, project: str) -> float:
    """The part of the engine that the project uses (of the resource of which it uses most), by its weight."""
    used, total = live_jobs.placed.used_on(engine, project).share, live_jobs.pools[engine].total
    parts = [mine / all_ for mine, all_ in zip(used, total, strict=True) if all_ > 0]
    # A cluster that does not report its nodes has no total.
    return (max(parts) if parts else used.millicores) / live_jobs.quotas.of(project).weight


def _limits(quota: KeyQuota, jobs: int, used: Share, parts: Parts) -> list[_Limit]:
    found: list[_Limit] = []
    if not quota.limits_running:
        return found
    need = _sum(parts)
    if quota.jobs is not None:
        found.append(_Limit(quota.jobs, jobs, 1, _counted(quota.jobs, "running job")))
    if quota.cpus is not None:
        found.append(_Limit(quota.cpus * CORE, used.millicores, need.millicores, _counted(quota.cpus, "CPU")))
    if quota.memory is not None:
        found.append(_Limit(quota.memory, used.memory, need.memory, f"{quota.memory / GIB:g} GiB of memory"))
    if quota.gpus is not None:
        found.append(_Limit(quota.gpus, used.gpus, need.gpus, _counted(quota.gpus, "GPU")))
    return found


def _counted(number: float, noun: str) -> str:
    return f"{number:g} {noun}{'s' if number != 1 else ''}"


@lru_cache(maxsize=1024)
def _sum(parts: Parts) -> Share:
    return sum((share.times(count) for count, share in parts), NOTHING)
