"""Finds the user of a TCP socket of this machine, by its addresses."""

import os
import socket
import struct
import sys
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import NamedTuple

_SOCK_DIAG, _BY_FAMILY, _REQUEST, _ERROR = 4, 20, 1, 2
_LISTENING = 10
_HEADER, _QUERY, _REPLY = struct.Struct("=IHHII"), struct.Struct("=BBBxI"), struct.Struct("=BBBB")
_PORTS, _REST, _OWNER = struct.Struct("!HH"), struct.Struct("=I8s"), struct.Struct("=12xII")
_ANY_COOKIE = b"\xff" * 8
_IDENTITY_BYTES = 4 + 2 * 16
"""The ports and the addresses."""

Address = tuple[str, int]


class Owner(NamedTuple):
    uid: int
    inode: int


def socket_owner(local: Address, remote: Address) -> Owner | None:
    """None if there is no such socket, or it is closed: a closed one has no inode, and root as its user."""
    try:
        found = _ask_kernel(local, remote)
    except OSError:
        found = _search_tables(local, remote)  # a kernel without sock_diag
    return found if found and found.inode else None


def _ask_kernel(local: Address, remote: Address) -> Owner | None:
    """Takes microseconds, however many sockets there are. Raises OSError."""
    hosts = [_plain(host) for host, _ in (local, remote)]
    if hosts[0].version != hosts[1].version:
        return None
    identity = _PORTS.pack(local[1], remote[1]) + b"".join(host.packed.ljust(16, b"\0") for host in hosts)
    family = socket.AF_INET if hosts[0].version == 4 else socket.AF_INET6
    body = _QUERY.pack(family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + identity + _REST.pack(0, _ANY_COOKIE)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as kernel:
        kernel.send(_HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _REQUEST, 1, 0) + body)
        reply = kernel.recv(1 << 16)
    if _HEADER.unpack_from(reply)[1] == _ERROR:
        number = -struct.unpack_from("=i", reply, _HEADER.size)[0]
        if number == 2:  # ENOENT
            return None
        raise OSError(number, os.strerror(number))
    found, state, *_ = _REPLY.unpack_from(reply, _HEADER.size)
    at = _HEADER.size + _REPLY.size
    same = _mapped(reply[at : at + _IDENTITY_BYTES], found) == _mapped(identity, family)
    # Without a connection the kernel returns the socket that listens there.
    if state == _LISTENING or not same:
        return None
    return Owner(*_OWNER.unpack_from(reply, at + _IDENTITY_BYTES + _REST.size))


def _mapped(identity: bytes, family: int) -> bytes:
    """IPv4 addresses as mapped IPv6 ones: a socket of the other family can have the connection."""
    if family == socket.AF_INET6:
        return identity
    prefix = bytes(10) + b"\xff\xff"
    return identity[:4] + prefix + identity[4:8] + prefix + identity[20:24]


def _search_tables(local: Address, remote: Address) -> Owner | None:
    theirs, ours = _encoded(*local), _encoded(*remote)
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, found, other, _, _, _, _, uid, _, inode, *_ = line.split()
            if found in theirs and other in ours and inode != "0":
                return Owner(int(uid), int(inode))
    return None


def _plain(host: str) -> IPv4Address | IPv6Address:
    address = ip_address(host.partition("%")[0])
    return getattr(address, "ipv4_mapped", None) or address


def _encoded(host: str, port: int) -> set[str]:
    """An address as in the tables: words of four bytes in native byte order; IPv4 also as mapped IPv6."""
    address = ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    packed = [address.packed, *([mapped.packed] if mapped else [])]
    packed += [bytes(10) + b"\xff\xff" + one for one in packed if len(one) == 4]
    words = lambda one: (one[at : at + 4] for at in range(0, len(one), 4))  # noqa: E731
    in_order = (
        b"".join(word[:: 1 if sys.byteorder == "big" else -1] for word in words(one)) for one in packed
    )
    return {f"{one.hex().upper()}:{port:04X}" for one in in_order}
