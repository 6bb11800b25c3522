"""Who is next: by priority, then first come first served, with backfill that never delays the head.

Jobs of one shape (the same needs and the same limit) are alike to the scheduler, so only the first of each shape is
ever looked at: a pass costs as much as there are shapes, however many jobs wait.
"""

import heapq
from collections.abc import Iterator
from typing import NamedTuple

from turnout.job import Job, Spec
from turnout.job.resources import Share

Shape = tuple[Share, float | None, tuple[tuple[int, Share], ...]]
Rank = tuple[int, int]


class Waiting(NamedTuple):
    rank: Rank
    spec: Spec

    @property
    def job_id(self) -> int:
        return self.rank[1]


class Queue:
    def __init__(self) -> None:
        self._shapes: dict[Shape, list[Waiting]] = {}
        self._shape_of: dict[int, Shape] = {}

    def __len__(self) -> int:
        return len(self._shape_of)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._shape_of

    def add(self, job: Job, spec: Spec, share: Share) -> None:
        shape = _shape(spec, share)
        self._shape_of[job.id] = shape
        heapq.heappush(self._shapes.setdefault(shape, []), Waiting(rank(job), spec))

    def remove(self, job_id: int) -> None:
        """The entry itself goes when it gets to the front."""
        self._shape_of.pop(job_id, None)

    def firsts(self) -> list[Waiting]:
        """The first of each shape, in the order in which they may go."""
        found: list[Waiting] = []
        for shape, heap in list(self._shapes.items()):
            while heap and heap[0].job_id not in self._shape_of:
                heapq.heappop(heap)
            if heap:
                found.append(heap[0])
            else:
                del self._shapes[shape]
        return sorted(found, key=lambda waiting: waiting.rank)

    def __iter__(self) -> Iterator[Waiting]:
        """All that wait, in order. For people, not for scheduling: it sorts them all."""
        entries = (waiting for heap in self._shapes.values() for waiting in heap)
        return iter(sorted((w for w in entries if w.job_id in self._shape_of), key=lambda w: w.rank))


def rank(job: Job) -> Rank:
    return (-job.priority, job.id)


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
