"""Whether a local connection comes from the user who runs the service."""

import os
import pwd
from pathlib import Path

from turnout.access.socket_owner import socket_owner

GATEWAY_HEADER = "X-Turnout-Gateway"
"""Its value is a secret of the service and its gRPC process, which sends it for callers that it has checked."""
PEER_HEADER = "X-Turnout-Peer"
"""The address of that process's caller."""

_NAMESPACES = ("user", "pid", "net")
_MARKERS = (b"TURNOUT_REPLICA=", b"TURNOUT_KEEPER=")
"""Variables in the environment of a job's processes, and of the supervisor, which is an ancestor of them."""
_KNOWN_MOST = 1024

_known: dict[str, bool] = {}
"""Whether a socket belongs to the operator, by its address and inode."""


def same_user(client: tuple[str, int], server: tuple[str, int], user: int | None = None) -> bool:
    """Whether the peer is a program of `user`, by default of the user who runs this one, and not in a job.

    Jobs never run as root, so sockets of root are not checked further.
    """
    user = os.getuid() if user is None else user
    found = socket_owner(client, server)
    if found is None or found.uid != user:
        return False
    return user == 0 or _is_of_operator(f"{client} {found.inode}", str(found.inode))


def user_name() -> str:
    """Of the user who runs this program."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


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
