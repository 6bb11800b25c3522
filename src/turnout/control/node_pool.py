"""The capacity of an engine's nodes, what is allocated, and where a gang fits."""

from collections import Counter
from itertools import islice
from typing import NamedTuple

from turnout.control.node_index import NodeIndex
from turnout.job import Launch, Node, ReplicaName, Spec
from turnout.job.resources import Parts, Share

NOTHING = Share(0, 0, 0)
_MOST_KNOWN = 10_000


class Allocation(NamedTuple):
    node: str
    share: Share
    gpus: tuple[int, ...]


Placement = dict[ReplicaName, Allocation]


class Fit(NamedTuple):
    """How a gang fits on these nodes when nothing else runs."""

    need: Share
    """What it is charged for."""
    alone: bool = False
    """It does not fit whole: it is charged for all nodes, whose resources its members share, and runs alone."""
    never: bool = False
    """There are not enough GPUs, or not on the right nodes."""


class NodePool:
    """CPU and memory never exclude a gang: one that is larger than the cluster runs alone."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._idle = self._free_by_node = NodeIndex({})
        self._devices: dict[str, set[int]] = {}
        self._fits: dict[Parts, Fit] = {}
        self.total = NOTHING
        self.free = NOTHING

    def resize(self, nodes: tuple[Node, ...]) -> None:
        """Replaces the nodes and clears all allocations."""
        self._nodes = {node.name: node for node in nodes}
        whole = {node.name: _all_of(node) for node in nodes}
        self._idle, self._free_by_node = NodeIndex(whole), NodeIndex(whole)
        self._devices = {node.name: set(range(node.gpus)) for node in nodes}
        self._fits = {}
        self.total = sum(whole.values(), NOTHING)
        self.free = self.total

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(self._nodes.values())

    def fit(self, parts: Parts) -> Fit:
        """Cached for each shape."""
        known = self._fits.get(parts)
        if known is None:
            if len(self._fits) >= _MOST_KNOWN:
                self._fits.clear()
            known = self._fits[parts] = self._find_fit(parts)
        return known

    def place(self, launch: Launch, parts: Parts) -> Placement | None:
        """An allocation for every replica of a gang of this shape, or None if they do not all fit now."""
        fit = self.fit(parts)
        if fit.never or not fit.need.fits(self.free):
            return None
        wants = [share for count, share in parts for _ in range(count)]
        nodes = self._spread(wants) if fit.alone else self._free_by_node.first_fit(wants)
        if nodes is None:
            return None
        names = [name for name, _ in launch.replicas()]
        return self._allocated(names, self._shares(wants, nodes) if fit.alone else wants, nodes)

    def reallocated(self, placement: Placement, spec: Spec, parts: Parts) -> Placement:
        """The same placement charged for the current nodes, which may differ from those at the time it was placed."""
        roles = {role.name: role.resources.share for role in spec.roles}
        wants = [roles[name.role] for name in placement]
        nodes = [allocation.node for allocation in placement.values()]
        shares = self._shares(wants, nodes) if self.fit(parts).alone else wants
        return {
            name: allocation._replace(share=share)
            for (name, allocation), share in zip(placement.items(), shares, strict=True)
        }

    def free_on(self, node: str) -> Share:
        return self._free_by_node[node]

    def take(self, placement: Placement) -> None:
        self._move(placement, -1)

    def give(self, placement: Placement) -> None:
        self._move(placement, +1)

    def without(self, gone: list[Placement]) -> "NodePool":
        """A copy of the pool with these placements released."""
        pool = NodePool()
        pool._nodes, pool._idle, pool._fits = self._nodes, self._idle, self._fits
        pool._free_by_node, pool._devices = self._free_by_node.copy(), self._devices.copy()
        pool.total, pool.free = self.total, self.free
        for placement in gone:
            pool.give(placement)
        return pool

    def _find_fit(self, parts: Parts) -> Fit:
        need = sum((share.times(count) for count, share in parts), NOTHING)
        wants = (
            [share for count, share in parts for _ in range(count)] if need.gpus <= self.total.gpus else []
        )
        if need.fits(self.total) and self._idle.first_fit(wants):
            return Fit(need)
        if not wants or self._spread(wants) is None:
            return Fit(need, never=True)
        return Fit(Share(self.total.millicores, self.total.memory, need.gpus), alone=True)

    def _spread(self, wants: list[Share]) -> list[str] | None:
        """A node for each member of a gang that runs alone: one with enough GPUs, or else the emptiest."""
        gpus = {name: node.gpus for name, node in self._nodes.items()}
        members = dict.fromkeys(self._nodes, 0)
        found: dict[int, str] = {}
        for number in sorted(range(len(wants)), key=lambda number: -wants[number].gpus):
            able = [name for name, left in gpus.items() if wants[number].gpus <= left]
            if not able:
                return None
            node = min(
                able, key=lambda name: (gpus[name], members[name]) if wants[number].gpus else members[name]
            )
            gpus[node] -= wants[number].gpus
            members[node] += 1
            found[number] = node
        return [found[number] for number in range(len(wants))]

    def _shares(self, wants: list[Share], nodes: list[str]) -> list[Share]:
        """The shares of a gang that runs alone: the members on a node split all of it."""
        members, seen = Counter(nodes), Counter[str]()
        shares: list[Share] = []
        for want, name in zip(wants, nodes, strict=True):
            node = self._nodes.get(name)
            if node is not None:
                part = members[name], seen[name]
                want = Share(_part(node.millicores, *part), _part(node.memory, *part), want.gpus)
            seen[name] += 1
            shares.append(want)
        return shares

    def _allocated(self, names: list[ReplicaName], shares: list[Share], nodes: list[str]) -> Placement:
        devices = {name: iter(sorted(self._devices[name])) for name in set(nodes)}
        allocations = (
            Allocation(node, share, tuple(islice(devices[node], share.gpus)))
            for node, share in zip(nodes, shares, strict=True)
        )
        return dict(zip(names, allocations, strict=True))

    def _move(self, placement: Placement, sign: int) -> None:
        for allocation in placement.values():
            if allocation.node not in self._nodes:
                continue
            moved = allocation.share.times(sign)
            self._free_by_node.change(allocation.node, moved)
            self.free += moved
            if not allocation.gpus:
                continue
            # A new set: a copy of the pool may share the old one.
            there, left = self._nodes[allocation.node].gpus, self._devices[allocation.node]
            gpus = {gpu for gpu in allocation.gpus if gpu < there}
            self._devices[allocation.node] = left - gpus if sign < 0 else left | gpus


def _all_of(node: Node) -> Share:
    return Share(node.millicores, node.memory, node.gpus)


def _part(whole: int, count: int, number: int) -> int:
    """The `number`th of `count` parts that are as equal as whole numbers can be and add up to `whole`."""
    return whole // count + (number < whole % count)
