"""The address of this node, and free ports."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import List, Tuple

from .errors import StagingError
from .settings import split_endpoint

_LOWEST, _HIGHEST = 10000, 65535
_TRIES = 2000


def find_address(endpoint: str) -> str:
    """The address from which this node reaches the service. Nothing is sent."""
    url = split_endpoint(endpoint)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(url.host, url.port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            return probe.getsockname()[0]
    except OSError:
        return socket.gethostname()


class Ports:
    """Free TCP ports outside the range from which the kernel takes ports for outgoing connections.

    They stay bound until `release`, so that no other program takes them.
    """

    def __init__(self, count: int) -> None:
        """Raises StagingError."""
        self._sockets: List[socket.socket] = []
        low, high = _ephemeral()
        for _ in range(_TRIES):
            if len(self._sockets) == count:
                break
            port = _LOWEST + int.from_bytes(os.urandom(4), "big") % (_HIGHEST - _LOWEST + 1)
            if not low <= port <= high:
                self._take(port)
        else:
            self.release()
            raise StagingError(f"there are no {count} free ports on this node")
        self.numbers = [taken.getsockname()[1] for taken in self._sockets]

    def release(self) -> None:
        for taken in self._sockets:
            taken.close()
        self._sockets = []

    def _take(self, port: int) -> None:
        holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            holder.bind(("", port))
        except OSError:
            holder.close()
        else:
            self._sockets.append(holder)


def _ephemeral() -> Tuple[int, int]:
    with contextlib.suppress(OSError, ValueError):
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
            low, high = map(int, file.read().split())
        if low > _LOWEST + _TRIES or high < _HIGHEST - _TRIES:
            return low, high
    return 32768, 60999
