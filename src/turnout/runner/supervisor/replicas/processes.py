"""Processes of replicas: notices their ends, stops them, and kills everything that a replica leaves behind."""

import contextlib
import os
import signal
import traceback
from collections.abc import Callable
from functools import partial
from typing import Protocol

from .. import procfs
from ..diagnostics import log_message, run_safely
from ..gang import (
    EXIT,
    LOST,
    NOT_FOUND,
    OUT_OF_MEMORY,
    Replica,
    SandboxStatus,
    container_failure,
    exit_from_shell_code,
    sandbox_failure,
)
from ..loop import EDGE, READ, Loop

_RETRY_SECONDS = 0.005
_SETUP_SECONDS = 0.05
_REAP_SECONDS = 10.0
_TRIES, _PAUSE = 5, 1.0


class OnEnd(Protocol):
    def __call__(self, replica: Replica, cause: str, message: str = "", at: int = 0) -> None: ...


class ReplicaProcesses:
    """`on_end` is called once for each watched replica, when no process of it is left."""

    def __init__(self, loop: Loop, on_end: OnEnd) -> None:
        self._loop = loop
        self._on_end = on_end
        self._children: dict[int, Replica] = {}
        self._killed: dict[int, Replica] = {}
        self._adopted: set[Replica] = set()
        self._helpers: set[int] = set()
        self._shells: dict[int, Callable[[procfs.Exit], None]] = {}
        # The supervisor has one thread.
        self._children_file = os.open(f"/proc/self/task/{os.getpid()}/children", os.O_RDONLY | os.O_CLOEXEC)
        self._cleaning_up: set[Replica] = set()
        """Replicas whose main process is gone while others of their processes are left."""

    @property
    def running(self) -> bool:
        return bool(self._children or self._adopted or self._cleaning_up)

    # Noticing ends.

    def start(self) -> None:
        """SIGCHLD reports the supervisor's children, and orphans of theirs, because it is their subreaper."""
        read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        self._signals = read
        self._loop.add(read, self._reap)
        self._loop.call_later(0, self._reap)

    def watch(self, replica: Replica) -> None:
        self._children[replica.pid] = replica
        if replica.spawner:
            replica.pidfd = os.pidfd_open(replica.pid)
            self._loop.add(replica.pidfd, lambda: self._on_spawned_ended(replica), READ | EDGE)

    def watch_helper(self, pid: int) -> None:
        """A process of the supervisor itself: it is no orphan of a replica."""
        self._helpers.add(pid)

    def watch_shell(self, pid: int, on_exit: Callable[[procfs.Exit], None]) -> None:
        """A shell that a user opened in a replica. It is killed with the replica's orphans."""
        self._shells[pid] = on_exit

    def adopt(self, replica: Replica, pidfd: int | None) -> None:
        """A replica that an earlier supervisor started; `pidfd` is None if its process is gone."""
        replica.adopted = True
        if pidfd is None:
            self._clean_up(replica)
            return
        replica.pidfd = pidfd
        self._adopted.add(replica)
        self._loop.add(pidfd, lambda: self._on_adopted_ended(replica), READ | EDGE)

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
            # Until it is reaped, no other process can get its id.
            replica = self._children.pop(child.si_pid, None)
            if replica and not replica.sandboxed:
                _signal_group(child.si_pid, signal.SIGKILL)
            on_exit = self._shells.pop(child.si_pid, None)
            if on_exit:
                run_safely(partial(on_exit, procfs.exit_from_wait(child)))
            os.waitid(os.P_PID, child.si_pid, os.WEXITED)
            self._helpers.discard(child.si_pid)
            if replica:
                self._on_reaped(replica, procfs.exit_from_wait(child))
            elif child.si_pid in self._killed:
                self._clean_up(self._killed.pop(child.si_pid))

    def _on_spawned_ended(self, replica: Replica) -> None:
        """If the spawner is gone, the process is the supervisor's child now, and SIGCHLD reports it."""
        exit = replica.spawner.wait(replica.pid) if replica.spawner else None
        if exit and self._children.pop(replica.pid, None):
            self._on_reaped(replica, exit)

    def _on_reaped(self, replica: Replica, exit: procfs.Exit) -> None:
        if replica.pidfd >= 0:
            self._loop.remove(replica.pidfd)
            os.close(replica.pidfd)
            replica.pidfd = -1
        replica.exit = exit
        self._clean_up(replica)

    def _on_adopted_ended(self, replica: Replica) -> None:
        """Called when the process ends, and again when its parent has reaped it: only then can its exit be known."""
        if replica not in self._adopted:
            return
        if replica.sandboxed:
            self._on_adopted_gone(replica)
            return
        known = procfs.exit_of_other(replica.pidfd)
        if known is True:
            self._loop.call_later(_REAP_SECONDS, lambda: self._on_adopted_gone(replica))
            return
        replica.exit = known or None
        self._on_adopted_gone(replica)

    def _on_adopted_gone(self, replica: Replica) -> None:
        if replica in self._adopted:
            self._adopted.discard(replica)
            self._loop.remove(replica.pidfd)
            os.close(replica.pidfd)
            self._clean_up(replica)

    # Killing what is left.

    def _clean_up(self, replica: Replica) -> None:
        """Calls `on_end` if no process is left; otherwise kills the rest and tries again. The end is reported whatever
        fails.
        """
        try:
            left = self._kill_leftovers(replica)
        except Exception:  # noqa: BLE001
            log_message(f"the processes that {replica.key} left cannot be killed: {traceback.format_exc()}")
            replica.cleanup_failures += 1
            left = replica.cleanup_failures < _TRIES
            if left:
                self._loop.call_later(_PAUSE, lambda: self._clean_up_again(replica))
        if left:
            self._cleaning_up.add(replica)
            return
        self._cleaning_up.discard(replica)
        self._on_end(replica, *self._outcome(replica))

    def _outcome(self, replica: Replica) -> tuple[str, str, int]:
        try:
            return _find_outcome(replica)
        except Exception as error:  # noqa: BLE001 as in `_clean_up`
            log_message(f"it is not known how {replica.key} ended: {traceback.format_exc()}")
            return LOST, f"{replica.name} has ended, but it is not known how: {error}", 0

    def _kill_leftovers(self, replica: Replica) -> bool:
        if replica.adopted:
            left = self._kill_marked(replica)
        elif replica.sandboxed:
            left = self._kill_sandbox(replica)
        else:
            left = self._kill_orphans(replica)
        if replica.slot and not left:
            left = replica.slot.kill_all()
            if left:
                self._loop.call_later(_RETRY_SECONDS, lambda: self._clean_up_again(replica))
        return left

    def _clean_up_again(self, replica: Replica) -> None:
        if replica in self._cleaning_up:
            self._clean_up(replica)

    def _kill_sandbox(self, replica: Replica) -> bool:
        """Kills the sandbox's first process, which takes all others with it. It is the supervisor's child now, unless
        it is gone.
        """
        init_pid = SandboxStatus(replica.status).init_pid
        if init_pid is None:
            # Bubblewrap was killed before it wrote the id of its child, and that child waits for it for ever.
            return self._kill_orphans(replica)
        try:
            gone = os.waitid(os.P_PID, init_pid, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            return False
        if gone:
            return False
        os.kill(init_pid, signal.SIGKILL)
        self._killed[init_pid] = replica
        return True

    def _kill_orphans(self, replica: Replica) -> bool:
        """Kills orphans: children of the supervisor that are neither replicas nor helpers. Their environment names the
        replica.
        """
        children = set(map(int, self._read_children().split()))
        candidates = children - self._children.keys() - self._killed.keys() - self._helpers
        orphans = [pid for pid in candidates if self._belongs(pid, replica)]
        if not orphans:
            return any(owner is replica for owner in self._killed.values())
        procfs.kill_trees(orphans)
        self._killed.update(dict.fromkeys(orphans, replica))
        return True

    def _read_children(self) -> bytes:
        """Reads the list of children, which comes a page at a time."""
        found = b""
        while more := os.pread(self._children_file, 1 << 12, len(found)):
            found += more
        return found

    def _belongs(self, pid: int, replica: Replica) -> bool:
        mark = procfs.marker(pid)
        if mark or replica.sandboxed:
            return mark == replica.key
        if procfs.has_file_open_in(pid, replica.directory):
            return True
        # It hides its origin. If no other replica can have left it, it belongs to this one.
        return not any(not other.sandboxed for other in self._children.values()) and procfs.alive(pid)

    def _kill_marked(self, replica: Replica) -> bool:
        """For an adopted replica: its orphans are not children of this supervisor, so it searches all processes."""
        left = procfs.marked_processes().get(replica.key, [])
        if not left:
            return False
        procfs.kill_trees(left)
        self._loop.call_later(_RETRY_SECONDS, lambda: self._clean_up_again(replica))
        return True

    # Stopping.

    def stop(self, replica: Replica, cause: str, kill_by: float) -> None:
        """Sends TERM now, unless it was sent before, and KILL at `kill_by` of the steady clock."""
        replica.kill_deadline = kill_by
        if not replica.cause:
            replica.cause = cause
            self._terminate(replica)
        wait = kill_by - self._loop.clock()
        replica.timers.append(self._loop.call_later(wait, lambda: self._kill(replica)))

    def _terminate(self, replica: Replica) -> None:
        if replica.exit or replica.ended:
            return
        if not replica.sandboxed:
            _signal_group(replica.pid, signal.SIGTERM)
            return
        init_pid = SandboxStatus(replica.status).init_pid
        if init_pid is None or procfs.marker(init_pid) != replica.key:
            self._loop.call_later(_RETRY_SECONDS, lambda: self._terminate(replica))
            return
        _signal_group(init_pid, signal.SIGTERM)
        # In a sandbox that is still being set up there may be no program yet to receive it.
        young = self._loop.clock() - procfs.to_seconds(replica.start_time) < _SETUP_SECONDS
        if young:
            self._loop.call_later(_SETUP_SECONDS, lambda: self._terminate(replica))

    def _kill(self, replica: Replica) -> None:
        if replica.ended or replica.exit:
            return
        if replica.sandboxed:
            init_pid = SandboxStatus(replica.status).init_pid
            if init_pid is not None and procfs.marker(init_pid) == replica.key:
                with contextlib.suppress(OSError):
                    os.kill(init_pid, signal.SIGKILL)
                return
        _signal_group(replica.pid, signal.SIGKILL)


def _find_outcome(replica: Replica) -> tuple[str, str, int]:
    """Cause, message, and the time of the end, if it is known better than now."""
    at = 0
    if replica.sandboxed:
        status = SandboxStatus(replica.status)
        never_ran = status.code is None and replica.exit is not None and not replica.cause
        if status.exit:
            replica.exit = status.exit
        elif replica.exit and replica.exit.code is not None:
            replica.exit = exit_from_shell_code(replica.exit.code)
        at = status.at if replica.adopted and status.code is not None else 0
        if never_ran and not (replica.slot and replica.slot.memory_kills()):
            cause, code, message = sandbox_failure(replica)
            replica.exit = procfs.Exit(code, None)
            return cause, message, 0
        if status.podman and status.code == 1 and (not_run := container_failure(replica)):
            replica.exit = procfs.Exit(not_run[0], None)
            return NOT_FOUND, not_run[1], at
    failed = replica.exit is None or replica.exit != (0, None)
    if replica.slot and failed and replica.slot.memory_kills():
        return OUT_OF_MEMORY, f"{replica.name} needed more than its {replica.slot.memory} bytes of memory", at
    if replica.cause:
        return replica.cause, replica.cause_detail, at
    if replica.exit is None:
        return (
            LOST,
            f"{replica.name} has ended, but its exit record was lost with the supervisor that had started it",
            at,
        )
    return EXIT, "", at


def _signal_group(group: int, number: int) -> None:
    if group <= 1:
        return  # 0 would be the supervisor's own group
    with contextlib.suppress(OSError):
        os.killpg(group, number)
        if number == signal.SIGTERM:
            # A stopped process would not receive it.
            os.killpg(group, signal.SIGCONT)
