"""The processes below the runner.

The runner is their subreaper: a process whose parent has ended becomes a child of the runner. So whatever the program
started, also a daemon in a session of its own, is found here.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Collection, Dict, List, Set


def descendants(root: int = 0) -> List[int]:
    """The processes below `root`, or below this process, parents before children."""
    found = children(root or os.getpid())
    seen = set(found)
    for pid in found:
        for child in children(pid):
            if child not in seen:
                seen.add(child)
                found.append(child)
    return found


def children(pid: int) -> List[int]:
    if not _LISTED:
        return _parents().get(pid, [])
    found: List[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found.extend(map(int, file.read().split()))
    return found


def alive(pid: int) -> bool:
    """False for a zombie."""
    fields = stat_fields(pid)
    return bool(fields) and fields[0] not in (b"Z", b"X")


def stat_fields(pid: int) -> List[bytes]:
    """The fields of /proc/<pid>/stat from the state on; empty if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in brackets may contain anything, also brackets and spaces.
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def terminate(spared: Collection[int]) -> None:
    """Sends TERM to all processes below this one. A stopped process is continued, because it could not receive it."""
    for pid in descendants():
        if pid not in spared:
            send(pid, signal.SIGTERM)
            send(pid, signal.SIGCONT)


def kill() -> bool:
    """Kills all processes below this one. Returns whether there was one.

    They are stopped first, since a stopped process cannot start another one meanwhile. The caller reaps, and calls
    again until nobody is left.
    """
    stopped: Set[int] = set()
    while True:
        fresh = [pid for pid in descendants() if pid not in stopped and alive(pid)]
        if not fresh:
            break
        for pid in fresh:
            send(pid, signal.SIGSTOP)
        stopped.update(fresh)
    for pid in stopped:
        send(pid, signal.SIGKILL)
    return bool(stopped)


def send(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def _parents() -> Dict[int, List[int]]:
    found: Dict[int, List[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            fields = stat_fields(int(name))
            if fields:
                found.setdefault(int(fields[1]), []).append(int(name))
    return found


_LISTED = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
"""Not every kernel lists the children of a process."""
