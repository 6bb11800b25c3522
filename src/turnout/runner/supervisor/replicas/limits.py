"""Resource limits that a child inherits: the supervisor sets them on itself for the moment of the start."""

import contextlib
import itertools
import os
from collections.abc import Iterator
from resource import RLIMIT_DATA, RLIMIT_NOFILE, RLIMIT_NPROC, getrlimit, setrlimit
from typing import Any

from .cgroups import Slot

_next_core = itertools.count()


class InheritedLimits:
    """`open_files` is the soft limit of jobs; the supervisor's own is higher."""

    def __init__(self, open_files: int) -> None:
        self._files = (open_files, getrlimit(RLIMIT_NOFILE)[1])
        self._own_files = (self._files[1], self._files[1])
        self._own_processes = getrlimit(RLIMIT_NPROC)
        self._own_memory = getrlimit(RLIMIT_DATA)
        self._cores = os.sched_getaffinity(0)
        self._load = os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)

    @contextlib.contextmanager
    def applied(self, plan: dict[str, Any], slot: Slot | None) -> Iterator[None]:
        setrlimit(RLIMIT_NOFILE, self._files)
        try:
            with slot.entered() if slot else self._without_cgroup(plan):
                yield
        finally:
            setrlimit(RLIMIT_NOFILE, self._own_files)

    @contextlib.contextmanager
    def _without_cgroup(self, plan: dict[str, Any]) -> Iterator[None]:
        millicores, memory, processes = plan.get("millicores", 0), plan.get("memory", 0), plan["processes"]
        # RLIMIT_DATA counts private writable memory, not reservations or mapped files. But a GPU driver maps far more
        # than it uses, even of that.
        if plan["env"].get("CUDA_VISIBLE_DEVICES"):
            memory = 0
        if processes:
            setrlimit(RLIMIT_NPROC, _soft(self._running_tasks() + processes, self._own_processes))
        if memory:
            setrlimit(RLIMIT_DATA, _soft(memory, self._own_memory))
        if 0 < millicores < 1000 * len(self._cores):
            os.sched_setaffinity(0, self._pick_cores(millicores))
        try:
            yield
        finally:
            if processes:
                setrlimit(RLIMIT_NPROC, self._own_processes)
            if memory:
                setrlimit(RLIMIT_DATA, self._own_memory)
            if 0 < millicores < 1000 * len(self._cores):
                os.sched_setaffinity(0, self._cores)

    def _running_tasks(self) -> int:
        """Number of tasks on the machine. RLIMIT_NPROC counts all tasks of the user, so the limit must lie above it."""
        return int(os.pread(self._load, 128, 0).split()[3].partition(b"/")[2])

    def _pick_cores(self, millicores: int) -> set[int]:
        """As many cores as it may use, rounded up, starting at another core each time."""
        cores = sorted(self._cores)
        first, wanted = next(_next_core), -(-millicores // 1000)
        return {cores[(first + number) % len(cores)] for number in range(wanted)}


def _soft(value: int, own: tuple[int, int]) -> tuple[int, int]:
    hard = own[1]
    return (value if hard < 0 else min(value, hard), hard)
