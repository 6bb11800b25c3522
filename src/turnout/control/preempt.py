"""Chooses the jobs to preempt for a job of higher priority."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from math import comb, inf

from turnout.control.live_job import LiveJob
from turnout.control.node_pool import NodePool

_MOST_TRIES = 1000


def fits_soon(head: LiveJob, pool: NodePool, ending: Sequence[LiveJob]) -> bool:
    """Whether the head fits once the gangs that are already ending have ended."""
    return bool(ending) and _helps(head, pool, ending)


def victims(
    head: LiveJob, pool: NodePool, ending: Sequence[LiveJob], candidates: list[LiveJob]
) -> Sequence[LiveJob]:
    """As few jobs as possible, then those of the lowest priority, then those that have run the shortest.

    `candidates`: the preemptible jobs of strictly lower priority. Empty if even all of them would not be enough, or if
    enough jobs are already ending.
    """
    if not candidates:
        return ()
    pool = _without(pool, ending)
    if _fits(head, pool) or not _helps(head, pool, candidates):
        return ()
    candidates.sort(key=lambda live: (live.job.priority, -(live.running_since or inf), -live.job.id))
    for chosen in _choices(candidates):
        if _helps(head, pool, chosen):
            return chosen
    return _enough(head, pool, candidates)


def _choices(candidates: list[LiveJob]) -> Iterator[tuple[LiveJob, ...]]:
    """Small sets before large ones; among equals the set whose last member comes first in the order of `candidates`.

    Stops when the number of sets grows too large.
    """
    for count in range(1, len(candidates) + 1):
        if comb(len(candidates), count) > _MOST_TRIES:
            return
        for last in range(count - 1, len(candidates)):
            for others in combinations(candidates[:last], count - 1):
                yield (*others, candidates[last])


def _enough(head: LiveJob, pool: NodePool, candidates: list[LiveJob]) -> list[LiveJob]:
    """Enough jobs to make the head fit. There may be a smaller set, but each of these is needed."""
    left, chosen = pool.without([]), list[LiveJob]()
    while not _fits(head, left):
        live = candidates[len(chosen)]
        left.give(live.placement)
        chosen.append(live)
    needed: list[LiveJob] = []
    for live in reversed(chosen):
        left.take(live.placement)
        if not _fits(head, left):
            left.give(live.placement)
            needed.append(live)
    return needed


def _helps(head: LiveJob, pool: NodePool, chosen: Sequence[LiveJob]) -> bool:
    free = sum((live.held for live in chosen), pool.free)
    return pool.fit(head.parts).need.fits(free) and _fits(head, _without(pool, chosen))


def _fits(head: LiveJob, pool: NodePool) -> bool:
    return pool.place(head.next_launch(), head.parts) is not None


def _without(pool: NodePool, gone: Iterable[LiveJob]) -> NodePool:
    return pool.without([live.placement for live in gone])
