"""Finds the port of the page that a replica's program serves, such as TensorBoard."""

import contextlib
import os
import sys
from collections.abc import Container
from ipaddress import ip_address
from pathlib import Path

from turnout.job import Replica

_ANY = ("0.0.0.0", "::")
_LISTENS = "0A"


def find(replica: Replica, wanted: int, reserved: Container[int]) -> tuple[str, int] | None:
    """The port `wanted`, otherwise the lowest that the program listens on and that is not `reserved` for its peers.

    Only sockets of the replica's own processes count, so that no other process can serve a page in its place.
    """
    open_ports = [found for found in _listening(replica.pid or 0) if found[1] not in reserved]
    if not open_ports:
        return None
    address, port = min(open_ports, key=lambda found: (found[1] != wanted, found[1]))
    return (replica.address or "127.0.0.1") if address in _ANY else address, port


def _listening(pid: int) -> list[tuple[str, int]]:
    """The addresses on which the process and its descendants listen, in their own network."""
    import psutil  # only when a page is opened

    owned: set[str] = set()
    with contextlib.suppress(psutil.Error):
        first = psutil.Process(pid)
        for process in (first, *first.children(recursive=True)):
            owned |= _sockets(process.pid)
    found: list[tuple[str, int]] = []
    for table in ("tcp", "tcp6") if owned else ():
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                _, local, _, state, _, _, _, _, _, inode, *_ = line.split()
                if state == _LISTENS and inode in owned:
                    found.append(_read_address(local))
    return found


def _sockets(pid: int) -> set[str]:
    """The inodes of its sockets."""
    found: set[str] = set()
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                kind, _, inode = os.readlink(f"/proc/{pid}/fd/{fd}").partition(":")
                if kind == "socket":
                    found.add(inode.strip("[]"))
    return found


def _read_address(text: str) -> tuple[str, int]:
    """Parses an address of the kernel's tables: words of four bytes, in the machine's own byte order."""
    address, _, port = text.partition(":")
    raw = bytes.fromhex(address)
    step = 1 if sys.byteorder == "big" else -1
    packed = b"".join(raw[at : at + 4][::step] for at in range(0, len(raw), 4))
    return str(ip_address(packed)), int(port, 16)
