"""Other processes, through /proc and pidfds.

A pid alone is never trusted: a start time, a parent or a marker has to confirm it.
"""

import contextlib
import fcntl
import os
import select
import signal
import struct
import time
from collections.abc import Iterator
from typing import NamedTuple

from .replicas import users

_PIDFD_GET_INFO = 3 << 30 | 64 << 16 | 0xFF << 8 | 11
_PIDFD_INFO_EXIT = 1 << 3
_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_KILL_SECONDS = 5.0

MARKER = b"TURNOUT_REPLICA="


class Exit(NamedTuple):
    code: int | None
    signal: int | None


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def start_time(pid: int) -> int | None:
    """In clock ticks since the boot: with the pid it identifies a process for good. None if it is gone."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:
        return None
    try:
        # The name in brackets may contain anything, also brackets and spaces.
        return int(os.read(fd, 1024).rpartition(b")")[2].split()[19])
    except (OSError, IndexError):
        return None
    finally:
        os.close(fd)


def now_in_ticks() -> int:
    """Now, by the clock of `start_time`."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // _TICK


def to_seconds(start: int) -> float:
    """Converts a start time to seconds of the steady clock."""
    return start * _TICK / 1e9


def start_time_after(began: int, pid: int) -> int | None:
    """The start time of a child that was created after `began`. Usually the clock has not advanced since.

    To read it from /proc would mean to wait for the child's exec.
    """
    return began if now_in_ticks() == began else start_time(pid)


def marker(pid: int) -> str:
    """The `<attempt>/<replica>` in the initial environment of the process; empty if it cannot be read."""
    for entry in environment(pid).split(b"\0"):
        if entry.startswith(MARKER):
            return entry[len(MARKER) :].decode(errors="replace")
    return ""


def environment(pid: int) -> bytes:
    """The initial environment of a process; empty if it cannot be read."""
    try:
        with access_to(pid), open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:
        return b""


@contextlib.contextmanager
def access_to(pid: int) -> Iterator[None]:
    """Allows to read what only the process's user may read. Raises OSError.

    A process in a private network is below a user namespace that the supervisor owns. That gives the supervisor access,
    and the process's user has none.
    """
    uid = _uid(pid) if users.uids() else users.OWN
    if uid not in users.uids():
        yield
        return
    with users.with_file_access_of(uid) if _in_owned_namespace(pid) else users.acting_as(uid):
        yield


def marked_processes() -> dict[str, list[int]]:
    """Every live process that has a marker, oldest first. Searches all of /proc."""
    found: dict[str, list[tuple[int, int]]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and (name := marker(int(entry))):
            found.setdefault(name, []).append((start_time(int(entry)) or 0, int(entry)))
    return {name: [pid for _, pid in sorted(pids)] for name, pids in found.items()}


def alive(pid: int) -> bool:
    """False for a zombie."""
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


def init_of_container(first: int) -> int | None:
    """The first process of the container that podman runs below the process `first`; None: it does not run yet."""
    for parent in children(first):
        for pid in children(parent):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/status") as file:
                numbers = next((line.split()[1:] for line in file if line.startswith("NSpid:")), [])
                # In the namespaces of this process, of `first`, and of the container.
                if numbers[2:] == ["1"]:
                    return pid
    return None


def descendants(root: int, most: int) -> list[int]:
    """All descendants, up to about `most`."""
    found = [root]
    for pid in found:
        if len(found) > most:
            break
        found += children(pid)
    return found[1:]


def session(leader: int) -> list[tuple[int, int]]:
    """The other processes of the session, each with its start time. Searches all of /proc."""
    found: list[tuple[int, int]] = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and int(entry) != leader:
            with contextlib.suppress(OSError, IndexError), open(f"/proc/{entry}/stat", "rb") as file:
                fields = file.read(1024).rpartition(b")")[2].split()
                if int(fields[3]) == leader:
                    found.append((int(entry), int(fields[19])))
    return found


def hang_up(members: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sends HUP to those that still run, as a closing terminal does. Returns them."""
    left: list[tuple[int, int]] = []
    for pid, started in members:
        if (pidfd := open_pidfd(pid, started)) is not None:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(pidfd, signal.SIGHUP)
                left.append((pid, started))
            os.close(pidfd)
    return left


def has_file_open_in(pid: int, directory: str) -> bool:
    """Whether the process has a file open there. This identifies a process that has emptied its environment."""
    with contextlib.suppress(OSError), access_to(pid):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            if os.readlink(f"/proc/{pid}/fd/{fd}").startswith(directory + "/"):
                return True
    return False


def kill_trees(roots: list[int]) -> None:
    """Kills processes and all their descendants. They are stopped first: a stopped process cannot fork meanwhile."""
    seen: set[int] = set()
    fresh = set(roots)
    while fresh:
        for pid in fresh:
            _signal(pid, signal.SIGSTOP)
        seen |= fresh
        fresh = {child for pid in seen for child in children(pid)} - seen
    for pid in seen:
        _signal(pid, signal.SIGKILL)


def kill_and_wait(roots: list[int]) -> None:
    """Like `kill_trees`, and waits until the roots are gone, but not for ever."""
    pidfds: list[int] = []
    for pid in roots:
        with contextlib.suppress(OSError):
            pidfds.append(os.pidfd_open(pid))
    kill_trees(roots)
    until = time.monotonic() + _KILL_SECONDS
    for fd in pidfds:
        select.select([fd], [], [], max(0.0, until - time.monotonic()))
        os.close(fd)


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


def exit_of_other(pidfd: int) -> Exit | bool:
    """How a process that is not a child ended. True: not known yet. False: this kernel does not report it.

    From Linux 6.15 on, a pidfd that was opened in time reports it once the parent has reaped the process.
    """
    info = bytearray(64)
    struct.pack_into("Q", info, 0, _PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info)
    except OSError:
        return False
    if not struct.unpack_from("Q", info, 0)[0] & _PIDFD_INFO_EXIT:
        return True
    return exit_from_status(struct.unpack_from("i", info, 60)[0])


def exit_from_status(status: int) -> Exit:
    if os.WIFSIGNALED(status):
        return Exit(None, os.WTERMSIG(status))
    return Exit(os.WEXITSTATUS(status), None)


def exit_from_wait(result: os.waitid_result) -> Exit:
    if result.si_code == os.CLD_EXITED:
        return Exit(result.si_status, None)
    return Exit(None, result.si_status)


def _uid(pid: int) -> int:
    """0 if it is gone."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith("Uid:"):
                return int(line.split()[1])
    return 0


def _in_owned_namespace(pid: int) -> bool:
    try:
        os.readlink(f"/proc/{pid}/ns/user")
    except OSError:
        return False
    return True


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)
