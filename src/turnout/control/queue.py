"""The queue: retried jobs first, then by priority, then first come, first served. Backfill never delays the head.

The scheduler treats jobs of one shape (the same needs and the same limit) alike, so it only looks at the first of each
shape: a pass costs as much as there are shapes, however many jobs wait.
"""

import heapq
from collections.abc import Iterator
from typing import NamedTuple

from turnout.job import Job, Spec
from turnout.job.resources import Parts, Share

Shape = tuple[Parts, float | None]
Rank = tuple[bool, int, int]


class QueueEntry(NamedTuple):
    """A waiting job."""

    rank: Rank
    spec: Spec

    @property
    def job_id(self) -> int:
        return self.rank[2]

    def shape(self, parts: Parts) -> Shape:
        return parts, self.spec.policy.time_limit


class Queue:
    """Invalid entries stay in their heap until they reach its front."""

    def __init__(self) -> None:
        self._shapes: dict[Shape, list[QueueEntry]] = {}
        self._entries: dict[int, QueueEntry] = {}
        self._until: dict[int, int] = {}
        self._deadlines: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._entries

    def add(
        self, job: Job, spec: Spec, parts: Parts, *, front: bool = False, until: int | None = None
    ) -> None:
        """`front`: before all priorities. `until`: when its wait ends. A job that is already queued moves."""
        entry = QueueEntry(rank(job, front), spec)
        self._entries[job.id] = entry
        heapq.heappush(self._shapes.setdefault(entry.shape(parts), []), entry)
        if until is not None:
            self._until[job.id] = until
            heapq.heappush(self._deadlines, (until, job.id))

    def remove(self, job_id: int) -> None:
        self._entries.pop(job_id, None)
        self._until.pop(job_id, None)

    def firsts(self) -> list[QueueEntry]:
        """The first job of each shape, in queue order."""
        found = map(self.first, list(self._shapes))
        return sorted((entry for entry in found if entry), key=lambda entry: entry.rank)

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
        due = self.next_deadline()
        if due is None or due > now:
            return []
        return [job_id for job_id, until in self._until.items() if until <= now]

    def ahead_of(self, job_id: int, most: int) -> tuple[int, list[QueueEntry]]:
        """How many jobs wait ahead of this one, and the first `most` of them in order. Searches the whole queue."""
        mine = self._entries[job_id].rank
        ahead = [entry for entry in self._entries.values() if entry.rank < mine]
        return len(ahead), heapq.nsmallest(most, ahead, key=lambda entry: entry.rank)

    def __iter__(self) -> Iterator[QueueEntry]:
        """All waiting jobs in order. Not for scheduling: it sorts the whole queue."""
        return iter(sorted(self._entries.values(), key=lambda entry: entry.rank))


def rank(job: Job, front: bool = False) -> Rank:
    return (not front, -job.priority, job.id)


class Release(NamedTuple):
    """A running gang with a known latest end."""

    at: float
    share: Share


def reservation(need: Share, free: Share, releases: list[Release]) -> float | None:
    """The latest time at which the head will fit; None if that depends on jobs without a time limit."""
    for release in sorted(releases):
        free += release.share
        if need.fits(free):
            return release.at
    return None


def may_backfill(
    need: Share, limit: float | None, head: Share, free: Share, now: float, reserved: float | None
) -> bool:
    """Whether a job that fits now may start before the head, which does not fit, without delaying it."""
    if limit is not None and reserved is not None and now + limit <= reserved:
        return True
    return all(
        (takes == 0 if wants > left else left - takes >= wants)
        for takes, wants, left in zip(need, head, free, strict=True)
    )
