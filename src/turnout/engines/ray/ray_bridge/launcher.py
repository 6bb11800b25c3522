"""Runs between Ray's worker and the runner: `python -c <this text> <pid of the worker> <command>…`

When a worker ends, Ray kills its children at once. So the runner is a child of this process, not of the worker: it
notices that this process was killed, and stops its program in order. If the runner is killed, this process becomes the
parent of what is left of the program, and kills it.
"""

import contextlib
import ctypes
import os
import signal
import sys

PDEATHSIG, SUBREAPER = 1, 36


def main() -> None:
    libc = ctypes.CDLL(None)
    libc.prctl(PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(SUBREAPER, 1, 0, 0, 0)
    if os.getppid() != int(sys.argv[1]):
        sys.exit(1)  # the worker ended meanwhile
    runner = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
    status = wait_for(runner)
    end_orphans()
    code = os.waitstatus_to_exitcode(status)
    sys.exit(code if code >= 0 else 128 - code)


def wait_for(runner: int) -> int:
    """Its status. Others may end before it."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == runner:
            return status


def end_orphans() -> None:
    """Kills every process below this one, until none is left."""
    while True:
        pids = children(os.getpid())
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for pid in pids:
            with contextlib.suppress(OSError):
                os.waitpid(pid, 0)


def children(parent: int) -> "list[int]":
    found = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{int(name)}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            if int(fields[1]) == parent:
                found.append(int(name))
    return found


if __name__ == "__main__":
    main()
