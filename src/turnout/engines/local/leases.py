"""Addresses and ports of replicas: each its own address in 127.64.0.0/10 and a block of ports nobody listens on.

Blocks are unique over all addresses, because many programs listen on every address of the machine.
"""

import random
import socket

from turnout.job import Attempt, Gang, Launch, Peer
from turnout.job.conventions import convention

PORTS = 2
"""One for TF_CONFIG and its kin, one for MASTER_PORT."""
_FIRST_PORT = 10_000
_EPHEMERAL = "/proc/sys/net/ipv4/ip_local_port_range"

Note = dict[str, tuple[str, tuple[int, ...]]]


class Leases:
    def __init__(self) -> None:
        self._blocks = _below_ephemeral() // PORTS
        self._next_block = random.randrange(self._blocks)
        self._next_address = random.randrange(1 << 21)
        self._leased: dict[Attempt, dict[str, tuple[str, int]]] = {}
        self._taken_blocks: set[int] = set()
        self._taken_addresses: set[str] = set()

    def lease(self, launch: Launch) -> Gang:
        """Idempotent: an attempt keeps what it has."""
        held = self._leased.setdefault(launch.attempt, {})
        peers: list[Peer] = []
        host_name = convention(launch.dialect).host
        for name, _ in launch.replicas():
            text = str(name)
            if text not in held:
                held[text] = (self._address(), self._block())
            address, first = held[text]
            ports = tuple(range(first, first + PORTS))
            if launch.spec.dashboard and not peers:
                ports += (self._dashboard(held, text),)
            peers.append(Peer(name, host_name(launch, name), address, ports))
        return tuple(peers)

    def dashboard(self, attempt: Attempt, replica: str) -> int:
        """The port that it was given for a page of its own; 0: none."""
        return self._leased.get(attempt, {}).get(_page(replica), ("", 0))[1]

    def ports(self, attempt: Attempt, replica: str) -> range:
        """Those that the gang's map names."""
        first = self._leased.get(attempt, {}).get(replica, ("", 0))[1]
        return range(first, first + PORTS)

    def address(self, attempt: Attempt, replica: str) -> str:
        return self._leased.get(attempt, {}).get(replica, ("", 0))[0]

    def restore(self, attempt: Attempt, note: Note) -> None:
        """What the keeper remembers of an attempt that was started before the service was."""
        if attempt in self._leased:
            return
        self._leased[attempt] = {name: (address, ports[0]) for name, (address, ports) in note.items()}
        for name, (address, ports) in note.items():
            self._taken_addresses.add(address)
            self._taken_blocks.add(ports[0])
            for page in ports[PORTS:]:
                self._taken_blocks.add(page)
                self._leased[attempt][_page(name)] = ("", page)

    def release(self, attempt: Attempt) -> None:
        for address, first in self._leased.pop(attempt, {}).values():
            self._taken_addresses.discard(address)
            self._taken_blocks.discard(first)

    def _dashboard(self, held: dict[str, tuple[str, int]], replica: str) -> int:
        """The first of a block of its own: any program may listen on all addresses."""
        if _page(replica) not in held:
            held[_page(replica)] = ("", self._block())
        return held[_page(replica)][1]

    def _address(self) -> str:
        while True:
            number = self._next_address = (self._next_address + 1) % (64 * 256 * 254)
            rest, last = divmod(number, 254)
            address = f"127.{64 + rest // 256}.{rest % 256}.{1 + last}"
            if address not in self._taken_addresses:
                self._taken_addresses.add(address)
                return address

    def _block(self) -> int:
        """The next free one. If all are taken one is shared: the addresses still tell the replicas apart."""
        for _ in range(self._blocks):
            self._next_block = (self._next_block + 1) % self._blocks
            first = _FIRST_PORT + self._next_block * PORTS
            if first not in self._taken_blocks and _free(first):
                self._taken_blocks.add(first)
                return first
        return _FIRST_PORT + self._next_block * PORTS


def _page(replica: str) -> str:
    """No replica is called that."""
    return f"{replica}/page"


def _below_ephemeral() -> int:
    """How many ports there are between ours and those that the kernel hands out by itself."""
    try:
        with open(_EPHEMERAL) as file:
            lowest = int(file.read().split()[0])
    except OSError:
        lowest = 32768
    return max(lowest - _FIRST_PORT, 400)


def _free(first: int) -> bool:
    """On all addresses at once: a bind to any address fails if somebody listens on one of them."""
    for port in range(first, first + PORTS):
        # The bare type: there is a probe for every replica, and Python's own socket around it takes most of the time.
        probe = socket.SocketType(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        finally:
            probe.close()
    return True
