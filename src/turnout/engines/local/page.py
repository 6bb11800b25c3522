"""Where a replica's program has opened a port for people to look at."""

import contextlib
from collections.abc import Container

from turnout.job import Replica

_ANY = ("0.0.0.0", "::")


def find(replica: Replica, wanted: int, taken: Container[int]) -> tuple[str, int] | None:
    """The port that it was given for that, else the lowest that it listens on and its peers are not told of.

    Only sockets of its own processes count, so that nobody else can put a page in its place.
    """
    open_ports = [one for one in _listening(replica.pid or 0) if one[1] not in taken]
    if not open_ports:
        return None
    address, port = min(open_ports, key=lambda one: (one[1] != wanted, one[1]))
    return (replica.address or "127.0.0.1") if address in _ANY else address, port


def _listening(pid: int) -> list[tuple[str, int]]:
    import psutil  # only for those who look

    found: list[tuple[str, int]] = []
    with contextlib.suppress(psutil.Error):
        first = psutil.Process(pid)
        for process in (first, *first.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                sockets = process.net_connections("tcp")
                found += [one.laddr for one in sockets if one.status == psutil.CONN_LISTEN]
    return found
