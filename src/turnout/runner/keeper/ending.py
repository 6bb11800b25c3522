"""How a replica is stopped, how its end is noticed, and how all that it leaves behind is ended with it."""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import Protocol

from . import processes
from .loop import EDGE, READ, Loop
from .replica import EXIT, LOST, OUT_OF_MEMORY, Replica, Status, from_shell, why_not_run

_SOON = 0.005
_SETTLE = 0.05
_REAP_PATIENCE = 10.0


class Finish(Protocol):
    def __call__(self, replica: Replica, cause: str, message: str = "", at: int = 0) -> None: ...


class Endings:
    """`finish` is called once for each replica that is watched, when nothing of it is left."""

    def __init__(self, loop: Loop, finish: Finish) -> None:
        self._loop = loop
        self._finish = finish
        self._children: dict[int, Replica] = {}
        self._left: dict[int, Replica] = {}
        self._adopted: set[Replica] = set()
        self._own: set[int] = set()
        self._guests: dict[int, Callable[[processes.Exit], None]] = {}
        # We have but one thread.
        self._list = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY | os.O_CLOEXEC)
        self._bereft: set[Replica] = set()
        """Their main process is gone, but something of them is left."""

    @property
    def running(self) -> bool:
        return bool(self._children or self._adopted or self._bereft)

    # Noticing.

    def watch_children(self) -> None:
        """SIGCHLD tells of our own children, and of orphans of theirs, whose parent we become as their subreaper."""
        read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        self._signals = read
        self._loop.on(read, self._reap)
        self._loop.later(0, self._reap)

    def watch(self, replica: Replica) -> None:
        self._children[replica.pid] = replica

    def watch_own(self, pid: int) -> None:
        """A process that we started for ourselves: no orphan of anybody."""
        self._own.add(pid)

    def watch_guest(self, pid: int, then: Callable[[processes.Exit], None]) -> None:
        """One that a person has in a replica, and that ends with it as its orphans do."""
        self._guests[pid] = then

    def adopt(self, replica: Replica, pidfd: int | None) -> None:
        """One that an earlier keeper started; None: it is gone already."""
        replica.adopted = True
        if pidfd is None:
            self._end_rest(replica)
            return
        replica.pidfd = pidfd
        self._adopted.add(replica)
        self._loop.on(pidfd, lambda: self._stranger_ended(replica), READ | EDGE)

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._signals, 4096)
        while True:
            try:
                child = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if child is None:
                return
            # While it is not reaped nobody else can have its id.
            replica = self._children.pop(child.si_pid, None)
            if replica and not replica.sandboxed:
                _signal_group(child.si_pid, signal.SIGKILL)
            if child.si_pid in self._guests:
                self._guests.pop(child.si_pid)(processes.from_child(child))
            os.waitid(os.P_PID, child.si_pid, os.WEXITED)
            self._own.discard(child.si_pid)
            if replica:
                replica.exit = processes.from_child(child)
                self._end_rest(replica)
            elif child.si_pid in self._left:
                self._end_rest(self._left.pop(child.si_pid))

    def _stranger_ended(self, replica: Replica) -> None:
        """Called when it ends and again when its parent has reaped it: only then can its exit be known."""
        if replica not in self._adopted:
            return
        if replica.sandboxed:
            self._lost_sight(replica)
            return
        known = processes.exit_of_stranger(replica.pidfd)
        if known is True:
            self._loop.later(_REAP_PATIENCE, lambda: self._lost_sight(replica))
            return
        replica.exit = known or None
        self._lost_sight(replica)

    def _lost_sight(self, replica: Replica) -> None:
        if replica in self._adopted:
            self._adopted.discard(replica)
            self._loop.off(replica.pidfd)
            os.close(replica.pidfd)
            self._end_rest(replica)

    # Ending what is left.

    def _end_rest(self, replica: Replica) -> None:
        """Finishes it if nothing is left; else ends that, and comes again."""
        if replica.adopted:
            left = self._end_marked(replica)
        elif replica.sandboxed:
            left = self._end_sandbox(replica)
        else:
            left = self._end_orphans(replica)
        if replica.slot and not left:
            left = replica.slot.end_all()
            if left:
                self._loop.later(_SOON, lambda: self._come_again(replica))
        if left:
            self._bereft.add(replica)
            return
        self._bereft.discard(replica)
        self._finish(replica, *_verdict(replica))

    def _come_again(self, replica: Replica) -> None:
        if replica in self._bereft:
            self._end_rest(replica)

    def _end_sandbox(self, replica: Replica) -> bool:
        """The first process of its namespace takes all others with it. It is our child now, unless it is gone."""
        inner = Status(replica.directory).inner
        if inner is None:
            # Bubblewrap was killed before it could tell of its child, which then waits for it for ever.
            return self._end_orphans(replica)
        try:
            gone = os.waitid(os.P_PID, inner, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            return False
        if gone:
            return False
        os.kill(inner, signal.SIGKILL)
        self._left[inner] = replica
        return True

    def _end_orphans(self, replica: Replica) -> bool:
        """Every child of ours that is no replica is an orphan of one; its environment tells of which."""
        children = set(map(int, self._listed().split()))
        strangers = children - self._children.keys() - self._left.keys() - self._own
        orphans = [pid for pid in strangers if self._belongs(pid, replica)]
        if not orphans:
            return any(owner is replica for owner in self._left.values())
        processes.end_trees(orphans)
        self._left.update(dict.fromkeys(orphans, replica))
        return True

    def _listed(self) -> bytes:
        """The kernel gives a page at a time."""
        found = b""
        while more := os.pread(self._list, 1 << 12, len(found)):
            found += more
        return found

    def _belongs(self, pid: int, replica: Replica) -> bool:
        mark = processes.marker(pid)
        if mark or replica.sandboxed:
            return mark == replica.key
        if processes.owns_log(pid, replica.directory):
            return True
        # It hides whose it is; when no other can have left it, it goes.
        return not any(not other.sandboxed for other in self._children.values()) and processes.alive(pid)

    def _end_marked(self, replica: Replica) -> bool:
        """For one that was adopted: its orphans are not our children, so all processes are looked through."""
        left = processes.marked().get(replica.key, [])
        if not left:
            return False
        processes.end_trees(left)
        self._loop.later(_SOON, lambda: self._come_again(replica))
        return True

    # Stopping.

    def stop(self, replica: Replica, cause: str, kill_at: int) -> None:
        """TERM now, unless it had that already, and KILL at the given time."""
        replica.kill_at = kill_at
        if not replica.cause:
            replica.cause = cause
            self._terminate(replica)
        self._loop.later(kill_at / 1e9 - time.time(), lambda: self._kill(replica))

    def _terminate(self, replica: Replica) -> None:
        if replica.exit or replica.ended:
            return
        if not replica.sandboxed:
            _signal_group(replica.pid, signal.SIGTERM)
            return
        inner = Status(replica.directory).inner
        if inner is None or processes.marker(inner) != replica.key:
            self._loop.later(_SOON, lambda: self._terminate(replica))
            return
        _signal_group(inner, signal.SIGTERM)
        # A sandbox that is still being set up has no program yet that could hear it.
        young = time.time() - replica.at / 1e9 < _SETTLE
        if young:
            self._loop.later(_SETTLE, lambda: self._terminate(replica))

    def _kill(self, replica: Replica) -> None:
        if replica.ended or replica.exit or time.time_ns() < replica.kill_at:
            return
        if replica.sandboxed:
            inner = Status(replica.directory).inner
            if inner is not None and processes.marker(inner) == replica.key:
                with contextlib.suppress(OSError):
                    os.kill(inner, signal.SIGKILL)
                return
        _signal_group(replica.pid, signal.SIGKILL)


def _verdict(replica: Replica) -> tuple[str, str, int]:
    """Cause, message, and when, if that is known better than now."""
    at = 0
    if replica.sandboxed:
        status = Status(replica.directory)
        never_ran = status.code is None and replica.exit is not None and not replica.cause
        if status.exit:
            replica.exit = status.exit
        elif replica.exit and replica.exit.code is not None:
            replica.exit = from_shell(replica.exit.code)
        at = status.at if replica.adopted and status.code is not None else 0
        if never_ran:
            cause, code, message = why_not_run(replica)
            replica.exit = processes.Exit(code, None)
            return cause, message, 0
    failed = replica.exit is None or replica.exit != (0, None)
    if replica.slot and failed and replica.slot.memory_kills():
        return OUT_OF_MEMORY, f"{replica.name} needed more than its {replica.slot.memory} bytes of memory", at
    if replica.cause:
        return replica.cause, "", at
    if replica.exit is None:
        return (
            LOST,
            f"{replica.name} has ended, but its exit record was lost with the keeper that had started it",
            at,
        )
    return EXIT, "", at


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(group, number)
        if number == signal.SIGTERM:
            # One that is stopped would not hear it.
            os.killpg(group, signal.SIGCONT)
