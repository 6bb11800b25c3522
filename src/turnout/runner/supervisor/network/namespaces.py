"""Network namespaces of gangs, and the maker: the process that makes them ahead of time.

All of them belong to one user namespace, in which the supervisor's user has every right and no job has any: a job's
sandbox is a user namespace below it. The maker lives in that user namespace and moves from one network namespace to the
next. It passes what it makes to the supervisor as open files. A namespace lives as long as one of its files or
processes.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import signal
import socket
from collections.abc import Sequence
from ipaddress import IPv4Network
from typing import Any, NamedTuple, NoReturn

from ..descriptors import receive
from ..replicas import users
from .netlink import MTU, TAP, Netlink, index_of, open_tap

NEW, TAP_AGAIN, LISTEN, SOCKET, SEND, CLOSE, SETTINGS = b"n", b"t", b"l", b"s", b"f", b"c", b"o"
"""Requests to the maker. It replies to the first four with files or with the number of an error."""
_REPLIED = (NEW, TAP_AGAIN, LISTEN, SOCKET)

_MESSAGE_BYTES = 1 << 17
_NEW_USER, _NEW_NET, _NEW_MOUNTS = 0x10000000, 0x40000000, 0x20000
_SET_DUMPABLE, _PARENT_DEATH, _NO_NEW_PRIVS, _AMBIENT, _RAISE = 4, 1, 38, 47, 2
_GET_USER_NAMESPACE, _GET_PARENT = 0xB701, 0xB702
_BIND = 0x1000
_NET_ADMIN, _SYS_ADMIN = 12, 21
_CAPABILITIES_VERSION = 0x20080522
_LOOPBACK = 1
_STREAMS = 3
_BACKLOG = 128
_ETHERNET = b"\x52\x55"
"""Prefix of the hardware addresses of slirp's own interfaces; the rest is their IP address."""
_METADATA = ("169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32")
"""Metadata services of clouds, which may contain secrets, and other link-local addresses."""
TUN = "/dev/net/tun"
GATEWAY = ("169.254.169.254", 80)
"""Where a gang finds the gateway to its buckets, which is also a metadata server, as in the clouds. No job can listen
on such a low port, so the port is never taken from a program.
"""
_libc = ctypes.PyDLL(None, use_errno=True)  # PyDLL: see `clone`
_setns, _unshare, _prctl = _libc.setns, _libc.unshare, _libc.prctl


class Options(NamedTuple):
    """Options of the networks that are made from now on."""

    outside: str = ""
    """The program that connects a network to the outside; empty: none."""
    subnet: str = "10.0.2.0/24"
    tun: str = TUN
    """The device file."""
    reach: tuple[tuple[str, int], ...] = ()
    """Addresses in the network that lead to the same addresses outside."""
    gateway: bool = False
    """The network has a listener for the service at GATEWAY."""

    @classmethod
    def of(cls, message: dict[str, Any]) -> "Options":
        """From a message of the service, or from `_asdict`."""
        reach = tuple((str(host), int(port)) for host, port in message["reach"])
        gateway = bool(message.get("gateway"))
        return cls(message["outside"], message["subnet"], message["tun"], reach, gateway)


def enter(user: int, network: int) -> None:
    """In a child before its exec: enters a gang's namespaces. Raises OSError."""
    _check(_setns(user, _NEW_USER))
    _check(_setns(network, _NEW_NET))


def enter_user(user: int) -> None:
    """In a child: enters a user namespace of the supervisor; -1: none. Raises OSError."""
    if user >= 0:
        _check(_setns(user, _NEW_USER))


def enter_network(network: int) -> None:
    """Raises OSError."""
    _check(_setns(network, _NEW_NET))


def become_spawner(user: int) -> None:
    """Enters the user namespace and an empty network, with the rights that `spawner` needs. Raises OSError."""
    _check(_setns(user, _NEW_USER))
    _check(_unshare(_NEW_NET))
    users.keep_capabilities(users.SPAWN)
    _prctl(_SET_DUMPABLE, 0, 0, 0, 0)


def owner_of(network: int) -> int:
    """Opens the user namespace that the network belongs to. Raises OSError."""
    return fcntl.ioctl(network, _GET_USER_NAMESPACE)


def is_child_of_own(path: str) -> bool:
    """Whether the parent of a user namespace is the supervisor's own. Raises OSError."""
    namespace = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parent = fcntl.ioctl(namespace, _GET_PARENT)
    finally:
        os.close(namespace)
    try:
        return os.fstat(parent).st_ino == os.stat("/proc/self/ns/user").st_ino
    finally:
        os.close(parent)


def keep_network_rights(user: int, tun: str) -> None:
    """In a child before its exec: keeps the right to enter networks, and puts the tun device where programs look."""
    _check(_setns(user, _NEW_USER))
    if tun != TUN:
        _check(_unshare(_NEW_MOUNTS))
        _check(_libc.mount(os.fsencode(tun), TUN.encode(), None, _BIND, None))
    rights = 1 << _NET_ADMIN | 1 << _SYS_ADMIN
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0)
    _check(_libc.capset(header, (ctypes.c_uint32 * 6)(rights, rights, rights, 0, 0, 0)))
    for right in (_NET_ADMIN, _SYS_ADMIN):
        _check(_prctl(_AMBIENT, _RAISE, right, 0, 0))
    _prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)


def end_with_parent() -> None:
    _prctl(_PARENT_DEATH, signal.SIGKILL, 0, 0, 0)


def close_all_but(known: list[int]) -> None:
    """Closes all files but these and the standard streams."""
    last = _STREAMS - 1
    for fd in sorted(known):
        os.closerange(last + 1, fd)
        last = fd
    os.closerange(last + 1, 1 << 20)


def fork_maker(user: int, options: Options) -> tuple[int, socket.socket, int]:
    """Returns the maker's process id, a connection to it, and a file of its user namespace.

    `user` is an existing user namespace to use, or -1.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        _become_maker(theirs, user, options)
    theirs.close()
    try:
        if user < 0:
            _expect(ours, b"namespace")
            write_maps(pid)
            ours.send(b"mapped")
        _expect(ours, b"ready")
        found = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC) if user < 0 else user
        ours.send(b"go")
    except OSError:
        ours.close()
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
        raise
    return pid, ours, found


def write_maps(pid: int) -> None:
    """Writes the id maps of the user namespace that the process has just made: the supervisor's own user, and those of
    jobs. Raises OSError.
    """
    uid, gid, jobs = os.geteuid(), os.getegid(), _job_ids()
    maps = (("uid_map", f"{uid} {uid} 1\n{jobs}"), ("gid_map", f"{gid} {gid} 1\n{jobs}"))
    for name, text in maps if jobs else (("setgroups", "deny"), *maps):
        fd = os.open(f"/proc/{pid}/{name}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)


def maps_all_users(pid: int) -> bool:
    """Whether the user namespace of the process contains all users of jobs. Raises OSError."""
    with open(f"/proc/{pid}/uid_map") as file:
        return not users.uids() or any(line.split() == _job_ids().split() for line in file)


def _job_ids() -> str:
    jobs = users.uids()
    return f"{jobs.start} {jobs.start} {len(jobs)}\n" if jobs else ""


def _expect(connection: socket.socket, expected: bytes) -> None:
    reply = connection.recv(_MESSAGE_BYTES)
    if reply != expected:
        number = int(reply) if reply.isdigit() else errno.ECHILD
        raise OSError(number, os.strerror(number))


# In the maker.


def _become_maker(connection: socket.socket, user: int, options: Options) -> NoReturn:
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # First of all: the supervisor may be killed at any moment, and the maker must not keep its sockets and its
        # lock. Only without the other end of its own connection does it learn of that.
        close_all_but([connection.fileno(), *([user] if user >= 0 else [])])
        if user >= 0:
            _check(_setns(user, _NEW_USER))
            os.close(user)
        else:
            _check(_unshare(_NEW_USER))
            # Otherwise its files in /proc would belong to root, and nobody could write its maps.
            _prctl(_SET_DUMPABLE, 1, 0, 0, 0)
            _tell(connection, b"namespace")
        end_with_parent()  # the kernel forgets it when a process enters a user namespace
        _tell(connection, b"ready")
        _prctl(_SET_DUMPABLE, 0, 0, 0, 0)
        _serve(connection, options)
        code = 0
    except OSError as error:
        with contextlib.suppress(OSError):
            connection.send(str(error.errno).encode())
    finally:
        os._exit(code)


def _tell(connection: socket.socket, step: bytes) -> None:
    """Returns when the supervisor has answered. Raises OSError if it is gone."""
    connection.send(step)
    if not connection.recv(_MESSAGE_BYTES):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def _serve(connection: socket.socket, options: Options) -> None:
    while True:
        message, files = receive(connection, _MESSAGE_BYTES)
        if not message:
            return
        kind, body = message[:1], message[1:]
        if kind == SETTINGS:
            options = Options.of(json.loads(body))
        try:
            _reply(connection, kind, _handle(kind, body, files, options))
        except OSError as error:
            if kind in _REPLIED:
                connection.send(str(error.errno).encode())
        _close(files)


def _reply(connection: socket.socket, kind: bytes, made: list[int]) -> None:
    """Replies in two messages: another program can use a tap only after the maker has closed it."""
    if made:
        try:
            socket.send_fds(connection, [kind], made)
        finally:
            _close(made)
        connection.send(kind)


def _handle(kind: bytes, body: bytes, files: Sequence[int], options: Options) -> list[int]:
    """Returns the files for the reply. Raises OSError."""
    if kind == NEW:
        return make(options)
    if kind in (TAP_AGAIN, LISTEN, SOCKET, SEND):
        _check(_setns(files[0], _NEW_NET))
    if kind == TAP_AGAIN:
        index_of(TAP)  # raises OSError if the network has no tap
        return [open_tap(options.tun)]
    if kind == LISTEN:
        return [_listen(*json.loads(body))]
    if kind == SOCKET:
        return [socket.socket(int(body), socket.SOCK_STREAM | socket.SOCK_CLOEXEC).detach()]
    if kind == SEND:
        _send(body)
    return []


def make(options: Options) -> list[int]:
    """Makes a new network. Returns its namespace, its tap if it has an outside, and its listeners, that of the gateway
    first. Raises OSError.
    """
    _check(_unshare(_NEW_NET))
    made: list[int] = []
    try:
        made.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
        with Netlink() as kernel:
            kernel.up(_LOOPBACK)
            if options.gateway:
                kernel.address(_LOOPBACK, GATEWAY[0], 32)
            if options.outside:
                made.append(open_tap(options.tun))
                _connect(kernel, options)
            kernel.commit()
        if options.gateway:
            made.append(_bound(*GATEWAY))
        made += [_listen(host, port) for host, port in options.reach]
    except OSError:
        _close(made)
        raise
    return made


def _connect(kernel: Netlink, options: Options) -> None:
    """Sets the tap's address and routes. In the tap's subnet only the DNS server can be reached, on its DNS port: slirp
    maps other addresses there to the host's own.
    """
    subnet = IPv4Network(options.subnet)
    tap, server = index_of(TAP), subnet[3]
    kernel.up(tap, MTU)
    kernel.address(tap, str(subnet[100]), subnet.prefixlen)
    kernel.default_route(tap, str(subnet[2]))
    # Entered beforehand: requests that are sent while the tap changes hands would be lost.
    for address in (subnet[2], server):
        kernel.neighbour(tap, str(address), _ETHERNET + address.packed)
    for number, protocol in enumerate((socket.IPPROTO_UDP, socket.IPPROTO_TCP)):
        kernel.allow(100 + number, IPv4Network(server), protocol, 53)
    for number, closed in enumerate((options.subnet, *_METADATA)):
        kernel.prohibit(110 + number, IPv4Network(closed))


def _listen(host: str, port: int) -> int:
    """Listens at an address of the host, which is added to this network."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if not (host.startswith("127.") or host == "::1"):
        with Netlink() as kernel:
            kernel.address(_LOOPBACK, host, 128 if family == socket.AF_INET6 else 32)
            kernel.commit(ignored=(errno.EEXIST,))
    return _bound(host, port)


def _bound(host: str, port: int) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if (host, port) == GATEWAY:
            # The service may still have the listener that it got from an earlier supervisor.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
        return listener.detach()


def _send(frame: bytes) -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0) as out:
        out.sendto(frame, (TAP, 0))


def _close(files: Sequence[int]) -> None:
    for fd in files:
        os.close(fd)


def _check(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
