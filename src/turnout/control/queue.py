"""Who is next: who starts over, then by priority, then first come first served; whoever passes never delays the head.

Jobs of one shape (the same needs and the same limit) are alike to the scheduler, so only the first of each shape is
ever looked at: a pass costs as much as there are shapes, however many jobs wait.
"""

import heapq
from collections.abc import Iterator
from typing import NamedTuple

from turnout.job import Job, Spec
from turnout.job.resources import Share

Shape = tuple[Share, float | None, tuple[tuple[int, Share], ...]]
Rank = tuple[bool, int, int]


class Waiting(NamedTuple):
    rank: Rank
    spec: Spec

    @property
    def job_id(self) -> int:
        return self.rank[2]


class Queue:
    """Entries that are not valid any more stay in their heap until they get to its front."""

    def __init__(self) -> None:
        self._shapes: dict[Shape, list[Waiting]] = {}
        self._entries: dict[int, Waiting] = {}
        self._until: dict[int, int] = {}
        self._deadlines: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._entries

    def add(
        self, job: Job, spec: Spec, share: Share, *, front: bool = False, until: int | None = None
    ) -> None:
        """`front`: before all priorities. `until`: when it is overdue. One that is here already moves."""
        entry = Waiting(rank(job, front), spec)
        self._entries[job.id] = entry
        heapq.heappush(self._shapes.setdefault(_shape(spec, share), []), entry)
        if until is not None:
            self._until[job.id] = until
            heapq.heappush(self._deadlines, (until, job.id))

    def remove(self, job_id: int) -> None:
        self._entries.pop(job_id, None)
        self._until.pop(job_id, None)

    def firsts(self) -> list[Waiting]:
        """The first of each shape, in the order in which they may go."""
        found: list[Waiting] = []
        entries = self._entries
        for shape, heap in list(self._shapes.items()):
            while heap and entries.get(heap[0].rank[2]) is not heap[0]:
                heapq.heappop(heap)
            if heap:
                found.append(heap[0])
            else:
                del self._shapes[shape]
        return sorted(found, key=lambda waiting: waiting.rank)

    def next_deadline(self) -> int | None:
        """When the first will be overdue."""
        heap = self._deadlines
        while heap and self._until.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def overdue(self, now: int) -> list[int]:
        """Those that should not wait any longer. Whoever asks takes them out."""
        due = self.next_deadline()
        if due is None or due > now:
            return []
        return [job_id for job_id, until in self._until.items() if until <= now]

    def __iter__(self) -> Iterator[Waiting]:
        """All that wait, in order. For people, not for scheduling: it sorts them all."""
        return iter(sorted(self._entries.values(), key=lambda waiting: waiting.rank))


def rank(job: Job, front: bool = False) -> Rank:
    return (not front, -job.priority, job.id)


class Release(NamedTuple):
    """A running gang that will be over at a time that is known."""

    at: float
    share: Share


def reservation(need: Share, room: Share, releases: list[Release]) -> float | None:
    """When the head will fit at the latest; None if that hangs on jobs without a limit."""
    for release in sorted(releases):
        room += release.share
        if need.fits(room):
            return release.at
    return None


def may_pass(
    need: Share, limit: float | None, head: Share, room: Share, now: float, reserved: float | None
) -> bool:
    """Whether a job that fits now may start before the head, which does not fit, without ever delaying it."""
    if limit is not None and reserved is not None and now + limit <= reserved:
        return True
    return all(
        (takes == 0 if wants > left else left - takes >= wants)
        for takes, wants, left in zip(need, head, room, strict=True)
    )


def _shape(spec: Spec, share: Share) -> Shape:
    parts = tuple((role.replicas, role.resources.share) for role in spec.roles)
    return share, spec.policy.time_limit, parts
