"""What an engine's nodes have, what is taken, and where a gang fits."""

from typing import NamedTuple

from turnout.job import Launch, Node, ReplicaName
from turnout.job.resources import Share

NOTHING = Share(0, 0, 0)


class Seat(NamedTuple):
    node: str
    share: Share
    gpus: tuple[int, ...]


Placement = dict[ReplicaName, Seat]


class Pool:
    """CPU and memory never refuse a gang: one that is larger than all there is counts as all of it, and runs alone."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._free: dict[str, Share] = {}
        self._devices: dict[str, set[int]] = {}
        self.total = NOTHING
        self.room = NOTHING

    def resize(self, nodes: tuple[Node, ...], placed: list[Placement]) -> None:
        """These are the nodes now, and these gangs are on them."""
        self._nodes = {node.name: node for node in nodes}
        self._free = {node.name: Share(node.cpu, node.memory, node.gpus) for node in nodes}
        self._devices = {node.name: set(range(node.gpus)) for node in nodes}
        self.total = sum(self._free.values(), NOTHING)
        self.room = self.total
        for placement in placed:
            self.take(placement)

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(self._nodes.values())

    def need(self, share: Share) -> Share:
        """What a gang that adds up to `share` counts for here."""
        if self.oversized(share):
            return Share(self.total.cpu, self.total.memory, share.gpus)
        return share

    def oversized(self, share: Share) -> bool:
        return share.cpu > self.total.cpu or share.memory > self.total.memory

    def place(self, launch: Launch, share: Share) -> Placement | None:
        """A seat for every replica of a gang that adds up to `share`, or None if they do not all fit now."""
        if not self.need(share).fits(self.room):
            return None
        shares = self._seat_shares(launch, self.oversized(share))
        free, devices = dict(self._free), {name: sorted(left) for name, left in self._devices.items()}
        placement: Placement = {}
        for replica, share in shares.items():
            node = next((name for name, left in free.items() if share.fits(left)), None)
            if node is None:
                return None
            free[node] -= share
            gpus, devices[node] = devices[node][: share.gpus], devices[node][share.gpus :]
            placement[replica] = Seat(node, share, tuple(gpus))
        return placement

    def take(self, placement: Placement) -> None:
        self._move(placement, -1)

    def give(self, placement: Placement) -> None:
        self._move(placement, +1)

    def without(self, gone: list[Placement]) -> "Pool":
        """What it would be like if these gangs had given back their seats."""
        pool = Pool()
        pool._nodes, pool._free = self._nodes, dict(self._free)
        pool._devices = {name: set(left) for name, left in self._devices.items()}
        pool.total, pool.room = self.total, self.room
        for placement in gone:
            pool.give(placement)
        return pool

    def _seat_shares(self, launch: Launch, oversized: bool) -> dict[ReplicaName, Share]:
        replicas = launch.replicas()
        if not oversized:
            return {name: role.resources.share for name, role in replicas}
        # Its members share all there is, each in its part, so that nothing else has room.
        cpu, memory = self.total.cpu / len(replicas), self.total.memory // len(replicas)
        return {name: Share(cpu, memory, role.resources.gpus) for name, role in replicas}

    def _move(self, placement: Placement, sign: int) -> None:
        for seat in placement.values():
            if seat.node not in self._nodes:
                continue
            moved = Share(sign * seat.share.cpu, sign * seat.share.memory, sign * seat.share.gpus)
            self._free[seat.node] += moved
            self.room += moved
            if sign < 0:
                self._devices[seat.node] -= set(seat.gpus)
            else:
                self._devices[seat.node] |= {gpu for gpu in seat.gpus if gpu < self._nodes[seat.node].gpus}
