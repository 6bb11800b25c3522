"""Interfaces, addresses, routes and rules of the current network namespace, through rtnetlink."""

import contextlib
import fcntl
import os
import socket
import struct
from ipaddress import IPv4Network

TAP = "tap0"
MTU = 65520

_NEW_LINK, _NEW_ADDRESS, _NEW_ROUTE, _NEW_NEIGHBOUR, _NEW_RULE = 16, 20, 24, 28, 32
_ERROR = 2
_FLAGS = 0x1 | 0x4 | 0x400  # request, acknowledge, create
_UP = 0x1
_MAIN, _STATIC, _UNICAST, _PERMANENT = 254, 4, 1, 0x80
_LOOK_UP, _PROHIBIT = 1, 8
_HEADER = struct.Struct("=IHHII")

_SET_INTERFACE, _SET_PERSISTENT, _GET_INDEX = 0x400454CA, 0x400454CB, 0x8933
_IFF_TAP, _IFF_NO_PI = 0x2, 0x1000
_NO_IPV6 = "/proc/sys/net/ipv6/conf/default/disable_ipv6"


class Netlink:
    """Messages are collected and sent to the kernel together."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        self._out = b""
        self._count = 0

    def __enter__(self) -> "Netlink":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def up(self, index: int, mtu: int = 0) -> None:
        body = struct.pack("=BxHiII", 0, 0, index, _UP, _UP)
        self._add(_NEW_LINK, body + (_attribute(4, struct.pack("=I", mtu)) if mtu else b""))

    def address(self, index: int, text: str, prefix: int) -> None:
        family, packed = _packed(text)
        body = struct.pack("=BBBBI", family, prefix, 0, 0, index)
        self._add(_NEW_ADDRESS, body + _attribute(2, packed) + _attribute(1, packed))

    def default_route(self, index: int, gateway: str) -> None:
        family, packed = _packed(gateway)
        body = struct.pack("=BBBBBBBBI", family, 0, 0, 0, _MAIN, _STATIC, 0, _UNICAST, 0)
        self._add(_NEW_ROUTE, body + _attribute(4, struct.pack("=I", index)) + _attribute(5, packed))

    def neighbour(self, index: int, text: str, ethernet: bytes) -> None:
        family, packed = _packed(text)
        body = struct.pack("=BxxxiHBB", family, index, _PERMANENT, 0, 0)
        self._add(_NEW_NEIGHBOUR, body + _attribute(1, packed) + _attribute(2, ethernet))

    def allow(self, priority: int, to: IPv4Network, protocol: int, port: int) -> None:
        """Packets to this port use the normal routes."""
        more = _attribute(22, struct.pack("=B", protocol)) + _attribute(24, struct.pack("=HH", port, port))
        self._rule(priority, to, _LOOK_UP, more)

    def prohibit(self, priority: int, to: IPv4Network) -> None:
        self._rule(priority, to, _PROHIBIT)

    def commit(self, *, ignored: tuple[int, ...] = ()) -> None:
        """Raises OSError for the first error, unless its number is in `ignored`."""
        self._socket.send(self._out)
        self._out = b""
        refused = 0
        while self._count:
            reply = self._socket.recv(1 << 16)
            while reply:
                length, kind, _, _, _ = _HEADER.unpack_from(reply)
                if kind == _ERROR:
                    number = -struct.unpack_from("=i", reply, _HEADER.size)[0]
                    self._count -= 1
                    refused = refused or (number if number not in ignored else 0)
                reply = reply[(length + 3) & ~3 :]
        if refused:
            raise OSError(refused, os.strerror(refused))

    def _rule(self, priority: int, to: IPv4Network, action: int, more: bytes = b"") -> None:
        table = _MAIN if action == _LOOK_UP else 0
        body = struct.pack("=BBBBBBBBI", socket.AF_INET, to.prefixlen, 0, 0, table, 0, 0, action, 0)
        body += _attribute(1, to.network_address.packed) + _attribute(6, struct.pack("=I", priority))
        self._add(_NEW_RULE, body + more)

    def _add(self, kind: int, body: bytes) -> None:
        self._count += 1
        self._out += _HEADER.pack(_HEADER.size + len(body), kind, _FLAGS, self._count, 0) + body


def open_tap(device: str) -> int:
    """Opens the interface TAP, which is made if it does not exist and stays when the file is closed. Raises OSError."""
    with contextlib.suppress(OSError), open(_NO_IPV6, "w") as file:
        file.write("1")  # otherwise the interface would send packets by itself
    tap = os.open(device, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(tap, _SET_INTERFACE, struct.pack("16sH22x", TAP.encode(), _IFF_TAP | _IFF_NO_PI))
        fcntl.ioctl(tap, _SET_PERSISTENT, 1)
    except OSError:
        os.close(tap)
        raise
    return tap


def index_of(name: str) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as any_socket:
        reply = fcntl.ioctl(any_socket, _GET_INDEX, struct.pack("16s24x", name.encode()))
    return struct.unpack_from("i", reply, 16)[0]


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _packed(text: str) -> tuple[int, bytes]:
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    return family, socket.inet_pton(family, text)
