"""Limits on CPU, memory and processes, by cgroups that are made once and used again and again.

Moving a process between cgroups takes the kernel some ten milliseconds, so none is moved. Under version 1 the keeper
itself goes into the cgroup (a thread that moves itself is spared the wait), starts the process there and comes back;
under version 2 the process is born in it.
"""

import contextlib
import fcntl
import os
import signal
from collections.abc import Iterator
from typing import Any

from .say import say

_PERIOD = 100_000
_LEAST_MEMORY = 16 << 20
"""The keeper is in there for a moment too."""
_CONTROLLERS = ("cpu", "memory", "pids")


class Slot:
    """A cgroup that holds one replica at a time."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.memory = 0
        self.born_in = -1
        """A descriptor of the cgroup for clone3; -1: the keeper has to be in it when it starts the process."""
        self._set: dict[str, str] = {}
        self._kills = 0
        self.tracks_only = False
        """It limits nothing but the number of processes: it is there so that none of them can get away."""

    def limit(self, plan: dict[str, Any]) -> None:
        self.tracks_only = not plan["cpu"] and not plan["memory"]
        self.memory = max(plan["memory"], _LEAST_MEMORY) if plan["memory"] else 0
        for path, value in self._wanted(plan["cpu"], self.memory, plan["processes"]):
            self._write(path, value)
        if not self.tracks_only:
            self._kills = self._count_kills()

    def resume(self) -> None:
        """One that an earlier keeper had limited: what was killed in it before is not known to be of this replica."""
        try:
            self._kills = self._count_kills()
        except FileNotFoundError:
            self.tracks_only = True

    def memory_kills(self) -> int:
        """How many processes the kernel killed because the replica needed more memory than it may have."""
        return 0 if self.tracks_only else self._count_kills() - self._kills

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        yield

    def remove(self) -> None:
        raise NotImplementedError

    def end_all(self) -> bool:
        """Kills whatever is in it; False when there is nothing."""
        pids = [pid for pid in self._pids() if pid != os.getpid()]
        if pids:
            # Nobody in there can fork any more while we go through them.
            self._write(self._pids_max, "0")
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return bool(pids)

    @property
    def _pids_max(self) -> str:
        raise NotImplementedError

    def _wanted(self, cpu: float, memory: int, processes: int) -> list[tuple[str, str]]:
        raise NotImplementedError

    def _pids(self) -> list[int]:
        raise NotImplementedError

    def _count_kills(self) -> int:
        raise NotImplementedError

    def _write(self, path: str, value: str) -> None:
        """Only what differs from the last time: most replicas want what the one before them wanted."""
        if self._set.get(path) != value:
            write(path, value)
            self._set[path] = value


class SlotV1(Slot):
    def __init__(self, number: int, base: dict[str, str], home: list[int], away: list[int]) -> None:
        super().__init__(number)
        self._at = {controller: f"{path}-{number}" for controller, path in base.items()}
        self._home = home
        self._away = away
        self._tasks: list[int] = [self._make("pids")]
        """In the order of the controllers; those that limit are made when they are first wanted."""
        self._swap = self._at["memory"] + "/memory.memsw.limit_in_bytes"

    def limit(self, plan: dict[str, Any]) -> None:
        if len(self._tasks) == 1 and (plan["cpu"] or plan["memory"]):
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
        # The one that counts processes is the last.
        first = -1 if self.tracks_only else 0
        try:
            for tasks in self._tasks[first:]:
                os.write(tasks, b"0")
            yield
        finally:
            self._leave(first)

    def _leave(self, first: int) -> None:
        """The process is there already, so nothing is raised. If our own cgroup was removed, to the one above it."""
        for home, away in zip(self._home[first:], self._away[first:], strict=True):
            try:
                os.write(home, b"0")
            except OSError as error:
                say(f"the keeper's own cgroup is gone: {error}")
                with contextlib.suppress(OSError):
                    os.write(away, b"0")

    @property
    def _pids_max(self) -> str:
        return self._at["pids"] + "/pids.max"

    def _wanted(self, cpu: float, memory: int, processes: int) -> list[tuple[str, str]]:
        if self.tracks_only:
            return [(self._pids_max, str(processes or "max"))]
        quota = str(max(1000, int(cpu * _PERIOD))) if cpu else "-1"
        wanted = [
            (self._at["cpu"] + "/cpu.cfs_period_us", str(_PERIOD)),
            (self._at["cpu"] + "/cpu.cfs_quota_us", quota),
            (self._pids_max, str(processes or "max")),
        ]
        limit = (self._at["memory"] + "/memory.limit_in_bytes", str(memory or -1))
        if self._set.get(limit[0]) != limit[1] and os.path.exists(self._swap):
            # With swap may never be less than without: let go of the one before the other is set.
            return [*wanted, (self._swap, "-1"), limit, (self._swap, limit[1])]
        return [*wanted, limit]

    def _pids(self) -> list[int]:
        # Opened anew each time: the kernel makes the list only once for each opening.
        fd = os.open(self._at["pids"] + "/cgroup.procs", os.O_RDONLY | os.O_CLOEXEC)
        try:
            # A part of a long one will do: whoever looks comes again until there is none.
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
        self.born_in = os.open(self._at, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def remove(self) -> None:
        os.rmdir(self._at)

    def end_all(self) -> bool:
        if count(read(self._at + "/cgroup.events"), "populated") == 0:
            return False
        try:
            write(self._at + "/cgroup.kill", "1")
        except OSError:
            # Before Linux 5.14.
            return super().end_all()
        return True

    @property
    def _pids_max(self) -> str:
        return self._at + "/pids.max"

    def _wanted(self, cpu: float, memory: int, processes: int) -> list[tuple[str, str]]:
        wanted = [
            (
                self._at + "/cpu.max",
                f"{max(1000, int(cpu * _PERIOD))} {_PERIOD}" if cpu else f"max {_PERIOD}",
            ),
            (self._at + "/memory.max", str(memory or "max")),
            (self._at + "/memory.oom.group", "1"),
            (self._pids_max, str(processes or "max")),
        ]
        swap = self._at + "/memory.swap.max"
        return [*wanted, (swap, "0" if memory else "max")] if os.path.exists(swap) else wanted

    def _pids(self) -> list[int]:
        return [int(pid) for pid in read(self._at + "/cgroup.procs").split()]

    def _count_kills(self) -> int:
        return count(read(self._at + "/memory.events"), "oom_kill")


class Slots:
    """The pool. `kind` tells people how limits are kept."""

    def __init__(
        self,
        kind: str,
        base: dict[str, str] | str,
        home: list[int] | None = None,
        away: list[int] | None = None,
    ) -> None:
        self.kind = kind
        self._base = base
        """What the paths of all slots begin with, for each controller or for all together."""
        self._home = home or []
        self._away = away or []
        self._free: list[Slot] = []
        self._used: set[int] = set()
        self._next = 0

    def take(self, plan: dict[str, Any]) -> Slot | None:
        """None for a sandbox without limits, and when the kernel refuses: rlimits have to do then.

        A sandbox takes all its processes with it when it ends. Without one a daemon that has emptied its environment
        and closed its files can be known by its cgroup only.
        """
        if "sandbox" in plan and not plan["cpu"] and not plan["memory"]:
            return None
        slot = self._free.pop() if self._free else None
        try:
            slot = slot or self._make(self._unused())
            slot.limit(plan)
        except OSError as error:
            say(f"no cgroup: {error}")
            return None
        self._used.add(slot.number)
        return slot

    def retake(self, number: int) -> Slot | None:
        """The one that a replica is in which an earlier keeper started."""
        try:
            slot = self._make(number)
            slot.resume()
        except OSError:
            return None
        self._used.add(number)
        return slot

    def give_back(self, slot: Slot) -> None:
        """It must be empty."""
        self._used.discard(slot.number)
        self._free.append(slot)

    def close(self) -> None:
        """At the end of the keeper: nothing of it stays behind."""
        with contextlib.suppress(OSError):
            for slot in self._free:
                slot.remove()
            for tasks in self._away:
                os.write(tasks, b"0")
            for path in self._base.values() if isinstance(self._base, dict) else ():
                os.rmdir(path + "-keeper")

    def _unused(self) -> int:
        """Called when none is free, so what is below is used, but for gaps that an earlier keeper left: they stay."""
        while self._next in self._used:
            self._next += 1
        return self._next

    def _make(self, number: int) -> Slot:
        return (
            SlotV2(number, self._base)
            if isinstance(self._base, str)
            else SlotV1(number, self._base, self._home, self._away)
        )


def find(
    name: str, uid: int, gid: int, root: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup"
) -> Slots | None:
    """Makes a place below our own cgroups that `uid` may work in, and goes there. None: we may not.

    The place is one for each user; in it everything of this keeper is called `<name>-…`.
    """
    try:
        ours = dict(line.split(":", 2)[1:] for line in read(own).splitlines())
        if os.path.exists(root + "/cgroup.controllers"):
            return _version_2(name, uid, gid, root, ours.get("", "/"))
        return _version_1(name, uid, gid, root, ours)
    except (OSError, ValueError, KeyError) as error:
        say(f"no cgroups, limits are kept by rlimits: {error}")
        return None


def _version_1(name: str, uid: int, gid: int, root: str, ours: dict[str, str]) -> Slots:
    mine = {one: path for controllers, path in ours.items() for one in controllers.split(",")}
    base: dict[str, str] = {}
    home: list[int] = []
    away: list[int] = []
    for controller in _CONTROLLERS:
        above = f"{root}/{controller}{mine[controller].rstrip('/')}"
        place = f"{above}/{_place(uid)}"
        base[controller] = f"{place}/{name}"
        _delegate(place, uid, gid)
        _sweep(place)
        _settle(base[controller] + "-keeper", uid, gid)
        home.append(os.open(base[controller] + "-keeper/tasks", os.O_WRONLY | os.O_CLOEXEC))
        away.append(os.open(above + "/tasks", os.O_WRONLY | os.O_CLOEXEC))
    for tasks in home:
        os.write(tasks, b"0")
    return Slots("cgroups v1", base, home, away)


def _version_2(name: str, uid: int, gid: int, root: str, ours: str) -> Slots:
    """Controllers can be given on only by a cgroup that holds no process itself: the nearest above us that may."""
    enable = " ".join(f"+{controller}" for controller in _CONTROLLERS)
    above = ours.rstrip("/") or "/"
    trouble: OSError | None = None
    while above:
        above = above.rpartition("/")[0]
        place = f"{root}{above}/{_place(uid)}"
        try:
            with contextlib.suppress(OSError):
                write(f"{root}{above}/cgroup.subtree_control", enable)
            _delegate(place, uid, gid)
            _sweep(place)
            _settle(f"{place}/{name}-keeper", uid, gid)
            write(f"{place}/{name}-keeper/cgroup.procs", "0")
            write(f"{place}/cgroup.subtree_control", enable)
            return Slots("cgroups v2", f"{place}/{name}")
        except OSError as error:
            trouble = error
    raise trouble or OSError(f"{root}{ours} cannot be divided")


def _sweep(place: str) -> None:
    """What keepers left that were killed: nobody holds the lock of theirs. What still runs in a slot keeps it.

    That a keeper's own is empty says nothing: it may be in a slot at this moment.
    """
    for keeper in os.listdir(place):
        if not keeper.endswith("-keeper"):
            continue
        with contextlib.suppress(OSError), _opened(f"{place}/{keeper}") as fd:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for name in os.listdir(place):
                if name.startswith(keeper.removesuffix("keeper")):
                    with contextlib.suppress(OSError):
                        os.rmdir(f"{place}/{name}")


def _settle(path: str, uid: int, gid: int) -> None:
    """Makes the keeper's own cgroup, and locks it for as long as this process lives."""
    while True:
        _delegate(path, uid, gid)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(fd, fcntl.LOCK_SH)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(fd)):
                return
        # Somebody swept it away in between.
        os.close(fd)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _place(uid: int) -> str:
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
    """The number behind a name in a file of lines `name number`."""
    for line in text.splitlines():
        if line.startswith(name + " "):
            return int(line.split()[1])
    return 0
