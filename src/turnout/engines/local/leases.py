"""Addresses and ports of replicas. Each gets an address in 127.64.0.0/10 and a block of ports that nobody listens on.

No two replicas have the same block, because many programs listen on every address of the machine. Private networks keep
jobs apart, so nothing is probed there.
"""

import random
import socket

from turnout.job import Attempt, Gang, Launch, Peer
from turnout.job.conventions import convention

PORTS = 2
"""One for TF_CONFIG and the like, one for MASTER_PORT."""
_FIRST_PORT = 10_000
_EPHEMERAL = "/proc/sys/net/ipv4/ip_local_port_range"

Note = dict[str, tuple[str, tuple[int, ...]]]


class Leases:
    """`probe`: whether jobs share the machine's network, where others may listen."""

    def __init__(self, probe: bool = True) -> None:
        self.probe = probe
        self._blocks = _below_ephemeral() // PORTS
        self._next_block = random.randrange(self._blocks)
        self._next_address = random.randrange(1 << 21)
        self._leased: dict[Attempt, dict[str, tuple[str, int]]] = {}
        self._taken_blocks: set[int] = set()
        self._taken_addresses: set[str] = set()

    def lease(self, launch: Launch) -> Gang:
        """Idempotent: an attempt keeps its addresses and ports."""
        held = self._leased.setdefault(launch.attempt, {})
        peers: list[Peer] = []
        host_name = convention(launch.dialect).host
        for name, _ in launch.replicas():
            text = str(name)
            if text not in held:
                held[text] = (self._address(), self._block())
            address, first = held[text]
            ports = tuple(range(first, first + PORTS))
            if launch.spec.program_page and not peers:
                ports += (self._lease_program_page(held, text),)
            peers.append(Peer(name, host_name(launch, name), address, ports))
        return tuple(peers)

    def program_page(self, attempt: Attempt, replica: str) -> int:
        """The port that the replica got for the page of its program; 0: none."""
        return self._leased.get(attempt, {}).get(_program_page_key(replica), ("", 0))[1]

    def ports(self, attempt: Attempt, replica: str) -> range:
        """The ports of the replica that its peers know."""
        first = self._leased.get(attempt, {}).get(replica, ("", 0))[1]
        return range(first, first + PORTS)

    def address(self, attempt: Attempt, replica: str) -> str:
        return self._leased.get(attempt, {}).get(replica, ("", 0))[0]

    def restore(self, attempt: Attempt, note: Note) -> None:
        """Takes over the addresses and ports of an attempt from the supervisor, after a start of the service."""
        if attempt in self._leased:
            return
        self._leased[attempt] = {name: (address, ports[0]) for name, (address, ports) in note.items()}
        for name, (address, ports) in note.items():
            self._taken_addresses.add(address)
            self._taken_blocks.add(ports[0])
            for port in ports[PORTS:]:
                self._taken_blocks.add(port)
                self._leased[attempt][_program_page_key(name)] = ("", port)

    def release(self, attempt: Attempt) -> None:
        for address, first in self._leased.pop(attempt, {}).values():
            self._taken_addresses.discard(address)
            self._taken_blocks.discard(first)

    def _lease_program_page(self, held: dict[str, tuple[str, int]], replica: str) -> int:
        """The first port of a separate block."""
        if _program_page_key(replica) not in held:
            held[_program_page_key(replica)] = ("", self._block())
        return held[_program_page_key(replica)][1]

    def _address(self) -> str:
        while True:
            number = self._next_address = (self._next_address + 1) % (64 * 256 * 254)
            rest, last = divmod(number, 254)
            address = f"127.{64 + rest // 256}.{rest % 256}.{1 + last}"
            if address not in self._taken_addresses:
                self._taken_addresses.add(address)
                return address

    def _block(self) -> int:
        """The next free block. If none is free, one is shared: the replicas still have different addresses."""
        for _ in range(self._blocks):
            self._next_block = (self._next_block + 1) % self._blocks
            first = _FIRST_PORT + self._next_block * PORTS
            if first not in self._taken_blocks and (not self.probe or _free(first)):
                self._taken_blocks.add(first)
                return first
        return _FIRST_PORT + self._next_block * PORTS


def _program_page_key(replica: str) -> str:
    """The key of the port of its program's page among the leases. No replica has such a name."""
    return f"{replica}/page"


def _below_ephemeral() -> int:
    """How many ports there are between the first one here and those that the kernel assigns itself."""
    try:
        with open(_EPHEMERAL) as file:
            lowest = int(file.read().split()[0])
    except OSError:
        lowest = 32768
    return max(lowest - _FIRST_PORT, 400)


def _free(first: int) -> bool:
    """Checks all addresses at once: a bind to the wildcard address fails if anybody listens on one of them."""
    for port in range(first, first + PORTS):
        # The bare C type: every replica is probed, and the Python class around it would take most of the time.
        probe = socket.SocketType(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        finally:
            probe.close()
    return True
