"""Limits on CPU, memory and processes by cgroups, which are made once and reused.

To move a process between cgroups takes the kernel some ten milliseconds, so no process is moved. Under version 1 the
supervisor itself enters the cgroup (a thread that moves itself does not wait), starts the process there and leaves;
under version 2 the process is created in it.
"""

import contextlib
import fcntl
import os
import signal
from collections.abc import Iterator
from typing import Any

from ..diagnostics import log_message

_PERIOD = 100_000
_MIN_MEMORY = 16 << 20
"""The supervisor is in the cgroup for a moment too."""
_CONTROLLERS = ("cpu", "memory", "pids")


class Slot:
    """A cgroup for one replica at a time."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.memory = 0
        self.clone_fd = -1
        """Descriptor of the cgroup for clone3; -1: the supervisor has to enter it to start the process."""
        self._set: dict[str, str] = {}
        self._kills = 0
        self.tracks_only = False
        """It limits only the number of processes, and is there so that none of them can escape."""

    def limit(self, plan: dict[str, Any]) -> None:
        self.tracks_only = not plan["millicores"] and not plan["memory"]
        self.memory = max(plan["memory"], _MIN_MEMORY) if plan["memory"] else 0
        for path, value in self._settings(plan["millicores"], self.memory, plan["processes"]):
            self._write(path, value)
        if not self.tracks_only:
            self._kills = self._count_kills()

    def resume(self) -> None:
        """Takes over a slot of an earlier supervisor. Kills before that may belong to another replica, so they do not
        count.
        """
        try:
            self._kills = self._count_kills()
        except FileNotFoundError:
            self.tracks_only = True

    def memory_kills(self) -> int:
        """How many processes the kernel killed because the replica exceeded its memory limit."""
        return 0 if self.tracks_only else self._count_kills() - self._kills

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        yield

    def remove(self) -> None:
        raise NotImplementedError

    def kill_all(self) -> bool:
        """Kills everything in it. False if it was empty."""
        pids = [pid for pid in self._pids() if pid != os.getpid()]
        if pids:
            # Now no process in it can fork while they are killed one by one.
            self._write(self._pids_max, "0")
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return bool(pids)

    @property
    def _pids_max(self) -> str:
        raise NotImplementedError

    def _settings(self, millicores: int, memory: int, processes: int) -> list[tuple[str, str]]:
        raise NotImplementedError

    def _pids(self) -> list[int]:
        raise NotImplementedError

    def _count_kills(self) -> int:
        raise NotImplementedError

    def _write(self, path: str, value: str) -> None:
        """Writes only what differs from the last time: most replicas have the same limits as the one before."""
        if self._set.get(path) != value:
            write(path, value)
            self._set[path] = value


class SlotV1(Slot):
    def __init__(
        self, number: int, base: dict[str, str], own_tasks: list[int], parent_tasks: list[int]
    ) -> None:
        super().__init__(number)
        self._at = {controller: f"{path}-{number}" for controller, path in base.items()}
        self._own_tasks = own_tasks
        self._parent_tasks = parent_tasks
        self._tasks: list[int] = [self._make("pids")]
        """In the order of the controllers. Those that limit are made when they are first needed."""
        self._pids_current = os.open(self._at["pids"] + "/pids.current", os.O_RDONLY | os.O_CLOEXEC)
        self._swap = self._at["memory"] + "/memory.memsw.limit_in_bytes"

    def limit(self, plan: dict[str, Any]) -> None:
        if len(self._tasks) == 1 and (plan["millicores"] or plan["memory"]):
            self._tasks = [self._make("cpu"), self._make("memory"), *self._tasks]
        super().limit(plan)

    def _make(self, controller: str) -> int:
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._at[controller])
        return os.open(self._at[controller] + "/tasks", os.O_WRONLY | os.O_CLOEXEC)

    def remove(self) -> None:
        for path in self._at.values():
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(path)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        # The `pids` controller is the last.
        first = -1 if self.tracks_only else 0
        try:
            for tasks in self._tasks[first:]:
                os.write(tasks, b"0")
            yield
        finally:
            self._leave(first)

    def _leave(self, first: int) -> None:
        """Raises nothing, because the process exists already. If the supervisor's own cgroup was removed, it goes to
        the parent.
        """
        for own_tasks, parent_tasks in zip(self._own_tasks[first:], self._parent_tasks[first:], strict=True):
            try:
                os.write(own_tasks, b"0")
            except OSError as error:
                log_message(f"the supervisor's own cgroup was removed: {error}")
                with contextlib.suppress(OSError):
                    os.write(parent_tasks, b"0")

    @property
    def _pids_max(self) -> str:
        return self._at["pids"] + "/pids.max"

    def _settings(self, millicores: int, memory: int, processes: int) -> list[tuple[str, str]]:
        if self.tracks_only:
            return [(self._pids_max, str(processes or "max"))]
        quota = str(_quota(millicores)) if millicores else "-1"
        settings = [
            (self._at["cpu"] + "/cpu.cfs_period_us", str(_PERIOD)),
            (self._at["cpu"] + "/cpu.cfs_quota_us", quota),
            (self._pids_max, str(processes or "max")),
        ]
        limit = (self._at["memory"] + "/memory.limit_in_bytes", str(memory or -1))
        if self._set.get(limit[0]) != limit[1] and os.path.exists(self._swap):
            # The limit with swap may never be below the one without, so it is lifted before the other is set.
            return [*settings, (self._swap, "-1"), limit, (self._swap, limit[1])]
        return [*settings, limit]

    def _pids(self) -> list[int]:
        # Most are empty. To open a file costs ten times as much as to read this one.
        if os.pread(self._pids_current, 32, 0) == b"0\n":
            return []
        # Opened anew each time, because the kernel makes the list once for each open file.
        fd = os.open(self._at["pids"] + "/cgroup.procs", os.O_RDONLY | os.O_CLOEXEC)
        try:
            # The start of a long list is enough: the caller repeats this until the list is empty.
            return [int(pid) for pid in os.read(fd, 1 << 16).split(b"\n")[:-1]]
        finally:
            os.close(fd)

    def _count_kills(self) -> int:
        return count(read(self._at["memory"] + "/memory.oom_control"), "oom_kill")


class SlotV2(Slot):
    def __init__(self, number: int, base: str) -> None:
        super().__init__(number)
        self._at = f"{base}-{number}"
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._at)
        self.clone_fd = os.open(self._at, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def remove(self) -> None:
        os.rmdir(self._at)

    def kill_all(self) -> bool:
        if count(read(self._at + "/cgroup.events"), "populated") == 0:
            return False
        try:
            write(self._at + "/cgroup.kill", "1")
        except OSError:
            # Before Linux 5.14.
            return super().kill_all()
        return True

    @property
    def _pids_max(self) -> str:
        return self._at + "/pids.max"

    def _settings(self, millicores: int, memory: int, processes: int) -> list[tuple[str, str]]:
        settings = [
            (
                self._at + "/cpu.max",
                f"{_quota(millicores)} {_PERIOD}" if millicores else f"max {_PERIOD}",
            ),
            (self._at + "/memory.max", str(memory or "max")),
            (self._at + "/memory.oom.group", "1"),
            (self._pids_max, str(processes or "max")),
        ]
        swap = self._at + "/memory.swap.max"
        return [*settings, (swap, "0" if memory else "max")] if os.path.exists(swap) else settings

    def _pids(self) -> list[int]:
        return [int(pid) for pid in read(self._at + "/cgroup.procs").split()]

    def _count_kills(self) -> int:
        return count(read(self._at + "/memory.events"), "oom_kill")


class Slots:
    """The pool of slots. `kind` says how limits are enforced, for users."""

    def __init__(
        self,
        kind: str,
        base: dict[str, str] | str,
        own_tasks: list[int] | None = None,
        parent_tasks: list[int] | None = None,
    ) -> None:
        self.kind = kind
        self._base = base
        """The start of the paths of all slots, for each controller or for all together."""
        self._own_tasks = own_tasks or []
        self._parent_tasks = parent_tasks or []
        self._free: list[Slot] = []
        self._used: set[int] = set()
        self._next = 0

    def acquire(self, plan: dict[str, Any]) -> Slot | None:
        """Returns None for a sandbox without limits, and if the kernel refuses: then rlimits are used.

        A sandbox kills all its processes when it ends. Without one, a daemon that has emptied its environment and
        closed its files can only be found by its cgroup.
        """
        if "sandbox" in plan and not plan["millicores"] and not plan["memory"]:
            return None
        slot = self._free.pop() if self._free else None
        try:
            slot = slot or self._make(self._unused())
            slot.limit(plan)
        except OSError as error:
            log_message(f"no cgroup: {error}")
            return None
        self._used.add(slot.number)
        return slot

    def adopt(self, number: int) -> Slot | None:
        """The slot of a replica that an earlier supervisor started."""
        try:
            slot = self._make(number)
            slot.resume()
        except OSError:
            return None
        self._used.add(number)
        return slot

    def number_of(self, pid: int) -> int:
        """The number of the slot that a process is in; -1 if it is in none."""
        names = self._base.values() if isinstance(self._base, dict) else (self._base,)
        ends = tuple(name.rpartition("/")[2] + "-" for name in names)
        with contextlib.suppress(OSError):
            for line in read(f"/proc/{pid}/cgroup").splitlines():
                name, _, number = line.rpartition("/")[2].rpartition("-")
                if name + "-" in ends and number.isdecimal():
                    return int(number)
        return -1

    def release(self, slot: Slot) -> None:
        """The slot must be empty."""
        self._used.discard(slot.number)
        self._free.append(slot)

    def close(self) -> None:
        """Removes all cgroups, when the supervisor exits."""
        with contextlib.suppress(OSError):
            for slot in self._free:
                slot.remove()
            for tasks in self._parent_tasks:
                os.write(tasks, b"0")
            for path in self._base.values() if isinstance(self._base, dict) else ():
                os.rmdir(path + "-keeper")

    def _unused(self) -> int:
        """Called when no slot is free, so all numbers below `_next` are used, except gaps that an earlier supervisor
        left.
        """
        while self._next in self._used:
            self._next += 1
        return self._next

    def _make(self, number: int) -> Slot:
        return (
            SlotV2(number, self._base)
            if isinstance(self._base, str)
            else SlotV1(number, self._base, self._own_tasks, self._parent_tasks)
        )


def set_up(
    name: str, uid: int, gid: int, root: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup"
) -> Slots | None:
    """Makes a cgroup below the supervisor's own that `uid` may use, and moves there. None if that is not allowed.

    There is one such cgroup for each user. In it, all names of this supervisor start with `<name>-`.
    """
    try:
        own_paths = dict(line.split(":", 2)[1:] for line in read(own).splitlines())
        if os.path.exists(root + "/cgroup.controllers"):
            return _version_2(name, uid, gid, root, own_paths.get("", "/"))
        return _version_1(name, uid, gid, root, own_paths)
    except (OSError, ValueError, KeyError) as error:
        log_message(f"no cgroups, limits are enforced by rlimits: {error}")
        return None


def _version_1(name: str, uid: int, gid: int, root: str, own_paths: dict[str, str]) -> Slots:
    by_controller = {name: path for controllers, path in own_paths.items() for name in controllers.split(",")}
    base: dict[str, str] = {}
    own_tasks: list[int] = []
    parent_tasks: list[int] = []
    for controller in _CONTROLLERS:
        above = f"{root}/{controller}{by_controller[controller].rstrip('/')}"
        delegated = f"{above}/{_delegated_name(uid)}"
        base[controller] = f"{delegated}/{name}"
        _delegate(delegated, uid, gid)
        _sweep(delegated)
        _make_own(base[controller] + "-keeper", uid, gid)
        own_tasks.append(os.open(base[controller] + "-keeper/tasks", os.O_WRONLY | os.O_CLOEXEC))
        parent_tasks.append(os.open(above + "/tasks", os.O_WRONLY | os.O_CLOEXEC))
    for tasks in own_tasks:
        os.write(tasks, b"0")
    return Slots("cgroups v1", base, own_tasks, parent_tasks)


def _version_2(name: str, uid: int, gid: int, root: str, own_paths: str) -> Slots:
    """Only a cgroup without processes can pass on controllers, so this uses the nearest ancestor that can."""
    enable = " ".join(f"+{controller}" for controller in _CONTROLLERS)
    above = own_paths.rstrip("/") or "/"
    last_error: OSError | None = None
    while above:
        above = above.rpartition("/")[0]
        delegated = f"{root}{above}/{_delegated_name(uid)}"
        try:
            with contextlib.suppress(OSError):
                write(f"{root}{above}/cgroup.subtree_control", enable)
            _delegate(delegated, uid, gid)
            _sweep(delegated)
            _make_own(f"{delegated}/{name}-keeper", uid, gid)
            write(f"{delegated}/{name}-keeper/cgroup.procs", "0")
            write(f"{delegated}/cgroup.subtree_control", enable)
            return Slots("cgroups v2", f"{delegated}/{name}")
        except OSError as error:
            last_error = error
    raise last_error or OSError(f"{root}{own_paths} cannot be divided")


def _quota(millicores: int) -> int:
    """Microseconds in each period; the kernel's minimum is 1000."""
    return max(1000, millicores * _PERIOD // 1000)


def _sweep(delegated: str) -> None:
    """Removes the cgroups of supervisors that were killed: their lock is free. A slot in use cannot be removed.

    An empty cgroup of a supervisor proves nothing: that supervisor may be inside one of its slots at this moment.
    """
    for supervisor in os.listdir(delegated):
        if not supervisor.endswith("-keeper"):
            continue
        with contextlib.suppress(OSError), _opened(f"{delegated}/{supervisor}") as fd:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for name in os.listdir(delegated):
                if name.startswith(supervisor.removesuffix("keeper")):
                    with contextlib.suppress(OSError):
                        os.rmdir(f"{delegated}/{name}")


def _make_own(path: str, uid: int, gid: int) -> None:
    """Makes the supervisor's own cgroup, and locks it for as long as this process lives."""
    while True:
        _delegate(path, uid, gid)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(fd, fcntl.LOCK_SH)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(fd)):
                return
        # Another supervisor removed it in between.
        os.close(fd)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _delegated_name(uid: int) -> str:
    return f"turnout-{os.getuid() if uid < 0 else uid}"


def _delegate(path: str, uid: int, gid: int) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
    if uid < 0:
        return
    for name in ("", "/tasks", "/cgroup.procs", "/cgroup.subtree_control"):
        with contextlib.suppress(FileNotFoundError):
            os.chown(path + name, uid, gid)


def write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def read(path: str) -> str:
    with open(path) as file:
        return file.read()


def count(text: str, name: str) -> int:
    """The number of `name` in a file with lines `name number`."""
    for line in text.splitlines():
        if line.startswith(name + " "):
            return int(line.split()[1])
    return 0
