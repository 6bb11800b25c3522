"""The queue: retried jobs first, then by priority, then by fair share between projects, then first come, first served.

Backfill never delays the head. The scheduler treats jobs of one shape (project, needs, limit…) alike, so it only
looks at the first of each shape: a pass costs as much as there are shapes, however many jobs wait.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from turnout.control.ranking import Rank, Ranking
from turnout.job import Job, Spec
from turnout.job.resources import Parts, Share

Shape = tuple[str, str, Parts, float | None]
"""Project, owner (if it has a quota), needs, time limit."""


class QueueEntry(NamedTuple):
    """A waiting job."""

    rank: Rank
    spec: Spec
    project: str
    owner: str
    """Empty if its key has no quota."""

    @property
    def job_id(self) -> int:
        return self.rank[2]

    def shape(self, parts: Parts) -> Shape:
        return self.project, self.owner, parts, self.spec.policy.time_limit


class Queue:
    """Invalid entries stay in their heap until they reach its front."""

    def __init__(self) -> None:
        self._shapes: dict[Shape, list[QueueEntry]] = {}
        self._entries: dict[int, QueueEntry] = {}
        self._rankings: dict[str, Ranking] = {}
        """By project."""
        self._of_owners = Counter[str]()
        """How many jobs of each key with a quota wait."""
        self._until: dict[int, int] = {}
        self._deadlines: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._entries

    def add(
        self,
        job: Job,
        spec: Spec,
        parts: Parts,
        *,
        front: bool = False,
        until: int | None = None,
        owner: str = "",
    ) -> None:
        """`front`: before all priorities. `until`: when its wait ends. A job that is already queued moves.

        `owner`: the key, if it has a quota.
        """
        self._drop(job.id)
        entry = QueueEntry(rank(job, front), spec, job.project, owner)
        if owner:
            self._of_owners[owner] += 1
        self._rankings.setdefault(job.project, Ranking()).add(entry.rank)
        self._entries[job.id] = entry
        heapq.heappush(self._shapes.setdefault(entry.shape(parts), []), entry)
        if until is not None:
            self._until[job.id] = until
            heapq.heappush(self._deadlines, (until, job.id))

    def remove(self, job_id: int) -> None:
        self._drop(job_id)
        self._until.pop(job_id, None)

    def firsts(self) -> list[QueueEntry]:
        """The first job of each shape, in no order."""
        return [entry for entry in map(self.first, list(self._shapes)) if entry]

    def first(self, shape: Shape) -> QueueEntry | None:
        heap, entries = self._shapes.get(shape, []), self._entries
        while heap and entries.get(heap[0].rank[2]) is not heap[0]:
            heapq.heappop(heap)
        if heap:
            return heap[0]
        self._shapes.pop(shape, None)
        return None

    def next_deadline(self) -> int | None:
        """When the next wait ends."""
        heap = self._deadlines
        while heap and self._until.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def overdue(self, now: int) -> list[int]:
        """Jobs whose wait has ended. The caller removes them."""
        # A job that has moved in the queue may be there twice.
        found: dict[int, None] = {}
        while (due := self.next_deadline()) is not None and due <= now:
            found[heapq.heappop(self._deadlines)[1]] = None
        return list(found)

    def ahead_of(self, job_id: int, most: int) -> tuple[int, list[QueueEntry]]:
        """How many jobs of its project wait ahead of this one, and the first `most` of them in order."""
        entry = self._entries[job_id]
        ranking = self._rankings[entry.project]
        count = ranking.position(entry.rank)
        return count, [self._entries[one] for _, _, one in islice(ranking, min(most, count))]

    def count(self, project: str) -> int:
        """How many jobs of the project wait."""
        ranking = self._rankings.get(project)
        return len(ranking) if ranking else 0

    def count_of_owner(self, owner: str) -> int:
        """How many jobs of a key with a quota wait."""
        return self._of_owners[owner]

    @property
    def projects(self) -> list[str]:
        """Those that have waiting jobs."""
        return list(self._rankings)

    def __iter__(self) -> Iterator[QueueEntry]:
        """All waiting jobs by priority and age, as if they were of one project."""
        return (self._entries[job_id] for _, _, job_id in heapq.merge(*self._rankings.values()))

    def _drop(self, job_id: int) -> None:
        entry = self._entries.pop(job_id, None)
        if entry:
            if entry.owner:
                self._of_owners[entry.owner] -= 1
            ranking = self._rankings[entry.project]
            ranking.remove(entry.rank)
            if not len(ranking):
                del self._rankings[entry.project]


def rank(job: Job, front: bool = False) -> Rank:
    return (not front, -job.priority, job.id)


class Release(NamedTuple):
    """A running gang with a known latest end."""

    at: float
    share: Share


def reservation(need: Share, free: Share, releases: Iterable[Release]) -> float | None:
    """The latest time at which the head will fit; None if that depends on jobs without a time limit.

    `releases` are in the order of their times.
    """
    for release in releases:
        free += release.share
        if need.fits(free):
            return release.at
    return None


def may_backfill(
    need: Share,
    limit: float | None,
    head: Share,
    free: Share,
    now: float,
    reserved: Callable[[], float | None],
) -> bool:
    """Whether a job that fits now may start before the head, which does not fit, without delaying it.

    `reserved`: the latest time at which the head will fit, if that is known.
    """
    for takes, wants, left in zip(need, head, free, strict=True):
        if takes != 0 if wants > left else left - takes < wants:
            break
    else:
        return True
    if limit is None:
        return False
    at = reserved()
    return at is not None and now + limit <= at
