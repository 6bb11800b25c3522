"""Finds the user of a local connection in the kernel's tables."""

import os
import sys
from ipaddress import ip_address
from pathlib import Path

GATEWAY_HEADER = "X-Turnout-Gateway"
"""Its value is a secret of the service and its gRPC process, which sends it for callers that it has checked."""

_NAMESPACES = ("user", "pid", "net")
_MARKERS = (b"TURNOUT_REPLICA=", b"TURNOUT_KEEPER=")
"""Variables in the environment of a job's processes, and of the supervisor, which is an ancestor of them."""
_KNOWN_MOST = 1024

_known: dict[str, bool] = {}
"""Whether a socket belongs to the operator, by its address and inode."""


def same_user(client: tuple[str, int], server: tuple[str, int], user: int | None = None) -> bool:
    """Whether the peer is a program of `user`, by default of the user who runs this one, and not in a job.

    Jobs never run as root, so sockets of root are not checked further. A closed socket has no inode, and the tables
    show root as its user.
    """
    user = os.getuid() if user is None else user
    theirs, ours = _encoded(*client), _encoded(*server)
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, remote, _, _, _, _, uid, _, inode, *_ = line.split()
            if local in theirs and remote in ours and inode != "0":
                return int(uid) == user and (
                    user == 0 or _is_of_operator(f"{line.split()[1]} {inode}", inode)
                )
    return False


def _is_of_operator(key: str, inode: str) -> bool:
    """Whether the socket belongs to the operator, not to a job. Each new connection is checked once.

    It is not the operator's if no process that holds it is found, or if one of these processes belongs to a job.
    """
    if key not in _known:
        holders = _holders(inode)
        while len(_known) >= _KNOWN_MOST:
            del _known[next(iter(_known))]
        _known[key] = bool(holders) and not any(map(_is_of_job, holders))
    return _known[key]


def _holders(inode: str) -> list[int]:
    """The processes that have this socket open, as far as their files in /proc can be read."""
    wanted = f"socket:[{inode}]"
    return [int(entry) for entry in os.listdir("/proc") if entry.isdecimal() and _holds(entry, wanted)]


def _holds(pid: str, wanted: str) -> bool:
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    for number in numbers:
        try:
            if os.readlink(f"/proc/{pid}/fd/{number}") == wanted:
                return True
        except OSError:
            continue
    return False


def _is_of_job(pid: int) -> bool:
    """In a sandbox its namespaces differ from ours; without one, the process or an ancestor has a marker.

    If this cannot be determined, it counts as a job's process.
    """
    try:
        if any(_namespace(pid, kind) != _namespace(os.getpid(), kind) for kind in _NAMESPACES):
            return True
        while pid > 1:
            if any(entry.startswith(_MARKERS) for entry in _environment(pid)):
                return True
            pid = _parent(pid)
    except (OSError, ValueError, IndexError):
        return True
    return False


def _namespace(pid: int, kind: str) -> str:
    return os.readlink(f"/proc/{pid}/ns/{kind}")


def _environment(pid: int) -> list[bytes]:
    """Empty for a process of another user, which is not a job's."""
    if os.stat(f"/proc/{pid}").st_uid != os.getuid():
        return []
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _encoded(host: str, port: int) -> set[str]:
    """An address as in the tables: words of four bytes in native byte order; IPv4 also as mapped IPv6."""
    address = ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    packed = [address.packed, *([mapped.packed] if mapped else [])]
    packed += [bytes(10) + b"\xff\xff" + ipv4 for ipv4 in packed if len(ipv4) == 4]
    words = lambda data: (data[at : at + 4] for at in range(0, len(data), 4))  # noqa: E731
    in_order = (
        b"".join(word[:: 1 if sys.byteorder == "big" else -1] for word in words(data)) for data in packed
    )
    return {f"{data.hex().upper()}:{port:04X}" for data in in_order}
