"""Who has to go so that a job of higher priority gets its place."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from math import comb

from turnout.control.live import Live
from turnout.control.pool import Pool

_MOST_TRIES = 1000


def fits_soon(head: Live, pool: Pool, placed: Iterable[Live]) -> bool:
    """Whether the head has a place once those have gone that are being ended anyway."""
    ending = [live for live in placed if live.verdict is not None and live.placement]
    return bool(ending) and _fits(head, _without(pool, ending))


def victims(head: Live, pool: Pool, placed: Iterable[Live]) -> Sequence[Live]:
    """As few as can be, then those of the lowest priority, then those that have run the shortest.

    Only who is preemptible and of strictly lower priority. Empty if even all of them would not help, and if enough
    are being ended already.
    """
    placed = list(placed)
    willing = [live for live in placed if live.may_be_preempted and live.job.priority < head.job.priority]
    if not willing:
        return ()
    pool = _without(pool, [live for live in placed if live.verdict is not None])
    if _fits(head, pool) or not _fits(head, _without(pool, willing)):
        return ()
    willing.sort(key=lambda live: (live.job.priority, -(live.lead.started or live.job.updated), -live.job.id))
    for chosen in _choices(willing):
        if _helps(head, pool, chosen):
            return chosen
    return _enough(head, pool, willing)


def _choices(willing: list[Live]) -> Iterator[tuple[Live, ...]]:
    """Small sets before large ones; among equals the set whose last member comes first in the order of `willing`.

    Ends where there would be too many to try.
    """
    for count in range(1, len(willing) + 1):
        if comb(len(willing), count) > _MOST_TRIES:
            return
        for last in range(count - 1, len(willing)):
            for others in combinations(willing[:last], count - 1):
                yield (*others, willing[last])


def _enough(head: Live, pool: Pool, willing: list[Live]) -> list[Live]:
    """Not surely the fewest, but nobody who could be spared."""
    left, chosen = pool.without([]), list[Live]()
    while not _fits(head, left):
        live = willing[len(chosen)]
        left.give(live.placement)
        chosen.append(live)
    needed: list[Live] = []
    for live in reversed(chosen):
        left.take(live.placement)
        if not _fits(head, left):
            left.give(live.placement)
            needed.append(live)
    return needed


def _helps(head: Live, pool: Pool, chosen: Sequence[Live]) -> bool:
    room = sum((live.held for live in chosen), pool.room)
    return pool.need(head.share).fits(room) and _fits(head, _without(pool, chosen))


def _fits(head: Live, pool: Pool) -> bool:
    return pool.place(head.next_launch(), head.share) is not None


def _without(pool: Pool, gone: Iterable[Live]) -> Pool:
    return pool.without([live.placement for live in gone])
