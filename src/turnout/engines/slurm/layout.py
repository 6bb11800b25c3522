"""How roles of different sizes share one allocation.

An allocation of Slurm consists of equal tasks, which are called slots here: so many CPUs, so much memory and so many
GPUs on one node. A layout puts one or more replicas into each slot, so that they fit on whatever nodes Slurm chooses.

One slot of the largest size for each replica would be simple, but then a parameter server takes a GPU that it does not
use. The parts of a heterogeneous job would fit exactly, but Slurm starts each part on nodes of its own, and never
starts a job with more parts than it has nodes. So small replicas share a slot, or are put into the slots of large ones:

    2 workers of 8 CPUs and a GPU, 2 parameter servers of 4 CPUs  →  2 slots of 12 CPUs and a GPU

Several layouts are possible; `layouts` returns them in the order in which they should be tried.
"""

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from turnout.job import Resources, Role

_MIB = 1 << 20
_LARGEST_SLOT = 2
"""A slot may be so many times as large as the largest replica, unless nothing else fits: large slots wait longer."""
_GPU_WEIGHT = 4
_MOST_LAYOUTS = 5
_DEFAULT_MEMORY = 1024
"""MiB for each CPU of a replica without a memory limit, if another replica has one. (With none at all, the
partition's default applies.)
"""


class Need(NamedTuple):
    """What a replica, or a slot, needs of one node."""

    cpus: int
    memory: int
    """MiB; 0: the partition's default."""
    gpus: int

    @property
    def memory_per_cpu(self) -> int:
        return -(-self.memory // self.cpus)

    def plus(self, other: "Need") -> "Need":
        return Need(self.cpus + other.cpus, self.memory + other.memory, self.gpus + other.gpus)

    def times(self, count: int) -> "Need":
        return Need(self.cpus * count, self.memory * count, self.gpus * count)

    def least_for(self, other: "Need") -> "Need":
        """The least that is enough for each of the two alone."""
        return Need(*map(max, self, other))


class Layout(NamedTuple):
    slot: Need
    slots: int
    needs: tuple[Need, ...]
    """Of a replica, for each role."""
    seats: tuple[tuple[int, ...], ...]
    """For each role the slots of its replicas, counted from 0."""

    @property
    def uniform(self) -> bool:
        """Whether each slot is exactly one replica."""
        return all(need == self.slot for need in self.needs)


def layouts(roles: Sequence[Role]) -> list[Layout]:
    """Those that waste least come first, but those with very large slots last."""
    needs = _needs(roles)
    counts = [role.replicas for role in roles]
    if len(set(needs)) == 1:
        return [_balanced(needs, counts, sum(counts))]
    largest = needs[0]
    for need in needs:
        largest = largest.least_for(need)
    found = [_balanced(needs, counts, number) for number in sorted(_numbers(needs, counts, largest))]
    found.sort(key=lambda layout: (_is_large(layout.slot, largest), _cost(layout), -layout.slots))
    best = found[: _MOST_LAYOUTS - 1]
    single = next(layout for layout in found if layout.slots == 1)
    return best if single in best else [*best, single]


def _numbers(needs: Sequence[Need], counts: Sequence[int], largest: Need) -> set[int]:
    """Numbers of slots that may suit: one for each of the largest replicas, or as few as their size allows."""
    numbers = {1, _fewest(needs, counts, largest)}
    replicas = 0
    for role in _largest_first(needs):
        replicas += counts[role]
        numbers.add(replicas)
    total = _total(needs, counts)
    return numbers | {-(-whole // most) for whole, most in zip(total, largest, strict=True) if most}


def _needs(roles: Sequence[Role]) -> tuple[Need, ...]:
    limited = any(role.resources.memory for role in roles)
    return tuple(_need(role.resources, limited) for role in roles)


def _need(resources: Resources, limited: bool) -> Need:
    """CPUs are whole in Slurm, and memory is a whole number of MiB for each of them."""
    cpus = max(1, -(-resources.millicores // 1000))
    memory = -(-resources.memory // _MIB) or (cpus * _DEFAULT_MEMORY if limited else 0)
    return Need(cpus, -(-memory // cpus) * cpus, resources.gpus)


def _balanced(needs: Sequence[Need], counts: Sequence[int], slots: int) -> Layout:
    """Each replica, the largest first, goes to the slot that has least so far."""
    total = _total(needs, counts)
    loads = [(0.0, number) for number in range(slots)]
    seats: list[list[int]] = [[] for _ in needs]
    for role in _largest_first(needs):
        weight, taken = _weight(needs[role], total), seats[role]
        for _ in range(counts[role]):
            load, number = loads[0]
            heapq.heapreplace(loads, (load + weight, number))
            taken.append(number)
    return Layout(_slot(needs, seats), slots, tuple(needs), tuple(map(tuple, seats)))


def _slot(needs: Sequence[Need], seats: Sequence[Sequence[int]]) -> Need:
    """The least that is enough for each slot."""
    held = [Counter(taken) for taken in seats]
    # Most slots hold the same: so many replicas of each role.
    contents = {tuple(one[number] for one in held) for number in set().union(*seats)}
    slot = Need(0, 0, 0)
    for counts in contents:
        slot = slot.least_for(_total(needs, counts))
    return slot


def _total(needs: Sequence[Need], counts: Sequence[int]) -> Need:
    total = Need(0, 0, 0)
    for need, count in zip(needs, counts, strict=True):
        total = total.plus(need.times(count))
    return total


def _fewest(needs: Sequence[Need], counts: Sequence[int], slot: Need) -> int:
    """How many slots of this size hold all replicas, each put into the first that has room."""
    groups: list[tuple[Need, int]] = []
    """Slots with the same room, and how many there are."""
    for role in _largest_first(needs):
        need, left = needs[role], counts[role]
        after: list[tuple[Need, int]] = []
        for room, number in groups:
            fit = _times_in(room, need)
            full, rest = divmod(min(left, fit * number), fit) if fit else (0, 0)
            left -= full * fit + rest
            after += _split(room, number, need, fit, full, rest)
        if left:
            fit = _times_in(slot, need)
            full, rest = divmod(left, fit)
            after += _split(slot, full + (rest > 0), need, fit, full, rest)
        groups = after
    return sum(number for _, number in groups)


def _times_in(room: Need, need: Need) -> int:
    return min(have // want for have, want in zip(room, need, strict=True) if want)


def _split(room: Need, number: int, need: Need, fit: int, full: int, rest: int) -> Iterator[tuple[Need, int]]:
    """Of equal slots, some get as many replicas as fit, one gets the rest, and the others get none."""
    parts = ((fit, full), (rest, 1 if rest else 0), (0, number - full - (rest > 0)))
    for replicas, slots in parts:
        if slots:
            yield Need(*(a - b for a, b in zip(room, need.times(replicas), strict=True))), slots


def _largest_first(needs: Sequence[Need]) -> list[int]:
    return sorted(
        range(len(needs)), key=lambda role: (-needs[role].gpus, -needs[role].cpus, -needs[role].memory)
    )


def _weight(need: Need, total: Need) -> float:
    return sum(part / whole for part, whole in zip(need, total, strict=True) if whole)


def _is_large(slot: Need, largest: Need) -> bool:
    return any(part > _LARGEST_SLOT * most for part, most in zip(slot, largest, strict=True))


def _cost(layout: Layout) -> float:
    """What the allocation takes, in multiples of what its replicas need."""
    taken = layout.slot.times(layout.slots)
    needed = _total(layout.needs, [len(seats) for seats in layout.seats])
    cost = taken.cpus / needed.cpus
    if needed.memory:
        cost += taken.memory / needed.memory
    return cost + (_GPU_WEIGHT * taken.gpus / needed.gpus if needed.gpus else 0)
