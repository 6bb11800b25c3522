"""Whose a connection from this machine to itself is, by what the kernel knows of it."""

import os
import sys
from ipaddress import ip_address
from pathlib import Path


def same_user(client: tuple[str, int], server: tuple[str, int]) -> bool:
    """Whether the other end is a program of the user who runs this one.

    A socket that its process has closed already belongs to nobody, which the tables show as root: it has no inode.
    """
    theirs, ours = _spelt(*client), _spelt(*server)
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, remote, _, _, _, _, uid, _, inode, *_ = line.split()
            if local in theirs and remote in ours and inode != "0":
                return int(uid) == os.getuid()
    return False


def _spelt(host: str, port: int) -> set[str]:
    """An address as the tables have it: words of four bytes, in the machine's own order; IPv4 also within IPv6."""
    address = ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    packed = [address.packed, *([mapped.packed] if mapped else [])]
    packed += [bytes(10) + b"\xff\xff" + one for one in packed if len(one) == 4]
    words = lambda one: (one[at : at + 4] for at in range(0, len(one), 4))  # noqa: E731
    in_order = (
        b"".join(word[:: 1 if sys.byteorder == "big" else -1] for word in words(one)) for one in packed
    )
    return {f"{one.hex().upper()}:{port:04X}" for one in in_order}
