"""Other processes, by way of /proc and pidfds.

A pid alone is never trusted: a start time, a parent or a marker says whose it is.
"""

import contextlib
import fcntl
import os
import signal
import struct
import time
from typing import NamedTuple

_PIDFD_GET_INFO = 3 << 30 | 64 << 16 | 0xFF << 8 | 11
_PIDFD_INFO_EXIT = 1 << 3
_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")

MARKER = b"TURNOUT_REPLICA="


class Exit(NamedTuple):
    code: int | None
    signal: int | None


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def start_time(pid: int) -> int | None:
    """In clock ticks since the boot: with the pid it names a process once and for all. None: there is none."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:
        return None
    try:
        # The name in brackets may hold anything, brackets and blanks too.
        return int(os.read(fd, 1024).rpartition(b")")[2].split()[19])
    except (OSError, IndexError):
        return None
    finally:
        os.close(fd)


def ticks() -> int:
    """The clock that `start_time` is read off."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // _TICK


def start_time_after(began: int, pid: int) -> int | None:
    """The start time of a child that was made after `began`: mostly the clock has not moved on meanwhile.

    To read it would mean to wait until the child's exec is through.
    """
    return began if ticks() == began else start_time(pid)


def marker(pid: int) -> str:
    """The `<attempt>/<replica>` in the environment that the process was started with; empty if it cannot be seen."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read()
    except OSError:
        return ""
    for entry in environment.split(b"\0"):
        if entry.startswith(MARKER):
            return entry[len(MARKER) :].decode(errors="replace")
    return ""


def marked() -> dict[str, list[int]]:
    """Every live process of ours that carries a marker, oldest first: a look through the whole of /proc."""
    found: dict[str, list[tuple[int, int]]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and (name := marker(int(entry))):
            found.setdefault(name, []).append((start_time(int(entry)) or 0, int(entry)))
    return {name: [pid for _, pid in sorted(pids)] for name, pids in found.items()}


def alive(pid: int) -> bool:
    """A zombie is not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read(1024).rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (OSError, IndexError):
        return False


def children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found.extend(map(int, file.read().split()))
    return found


def session(leader: int) -> list[tuple[int, int]]:
    """The others in its session, each with its start time: a look through the whole of /proc."""
    found: list[tuple[int, int]] = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and int(entry) != leader:
            with contextlib.suppress(OSError, IndexError), open(f"/proc/{entry}/stat", "rb") as file:
                fields = file.read(1024).rpartition(b")")[2].split()
                if int(fields[3]) == leader:
                    found.append((int(entry), int(fields[19])))
    return found


def hang_up(members: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """HUP to those of them that there still are, as a terminal does that is taken away. Returns whom it went to."""
    left: list[tuple[int, int]] = []
    for pid, started in members:
        if (pidfd := open_pidfd(pid, started)) is not None:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(pidfd, signal.SIGHUP)
                left.append((pid, started))
            os.close(pidfd)
    return left


def owns_log(pid: int, directory: str) -> bool:
    """Whether it has a file of this replica open: how a process is told that has emptied its environment."""
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            if os.readlink(f"/proc/{pid}/fd/{fd}").startswith(directory + "/"):
                return True
    return False


def end_trees(roots: list[int]) -> None:
    """KILL them and all below. They are stopped first: who is stopped cannot fork while we look for the others."""
    seen: set[int] = set()
    fresh = set(roots)
    while fresh:
        for pid in fresh:
            _signal(pid, signal.SIGSTOP)
        seen |= fresh
        fresh = {child for pid in seen for child in children(pid)} - seen
    for pid in seen:
        _signal(pid, signal.SIGKILL)


def open_pidfd(pid: int, started: int) -> int | None:
    """A pidfd of exactly that process; None if it is gone."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return None
    if start_time(pid) == started:
        return fd
    os.close(fd)
    return None


def exit_of_stranger(pidfd: int) -> Exit | bool:
    """How a process that is not our child ended; True: it cannot be told yet; False: this kernel never tells.

    From Linux 6.15 on a pidfd that was opened in time knows, once the parent has reaped the process.
    """
    info = bytearray(64)
    struct.pack_into("Q", info, 0, _PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info)
    except OSError:
        return False
    if not struct.unpack_from("Q", info, 0)[0] & _PIDFD_INFO_EXIT:
        return True
    return from_status(struct.unpack_from("i", info, 60)[0])


def from_status(status: int) -> Exit:
    if os.WIFSIGNALED(status):
        return Exit(None, os.WTERMSIG(status))
    return Exit(os.WEXITSTATUS(status), None)


def from_child(result: os.waitid_result) -> Exit:
    if result.si_code == os.CLD_EXITED:
        return Exit(result.si_status, None)
    return Exit(None, result.si_status)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)
