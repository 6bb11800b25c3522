"""What a child inherits: the limits that the keeper has at the moment in which it starts it."""

import contextlib
import itertools
import os
from collections.abc import Iterator
from resource import RLIMIT_DATA, RLIMIT_NOFILE, RLIMIT_NPROC, getrlimit, setrlimit
from typing import Any

from .cgroups import Slot

_turn = itertools.count()


class Limits:
    """`open_files` is the usual soft limit, which the keeper itself is above."""

    def __init__(self, open_files: int) -> None:
        self._files = (open_files, getrlimit(RLIMIT_NOFILE)[1])
        self._own_files = (self._files[1], self._files[1])
        self._own_processes = getrlimit(RLIMIT_NPROC)
        self._own_memory = getrlimit(RLIMIT_DATA)
        self._cores = os.sched_getaffinity(0)
        self._load = os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)

    @contextlib.contextmanager
    def around(self, plan: dict[str, Any], slot: Slot | None) -> Iterator[None]:
        setrlimit(RLIMIT_NOFILE, self._files)
        try:
            with slot.entered() if slot else self._without_cgroup(plan):
                yield
        finally:
            setrlimit(RLIMIT_NOFILE, self._own_files)

    @contextlib.contextmanager
    def _without_cgroup(self, plan: dict[str, Any]) -> Iterator[None]:
        cpu, memory, processes = plan.get("cpu", 0), plan.get("memory", 0), plan["processes"]
        # What is private and writable counts, not what is only reserved or mapped from files. A driver for GPUs maps
        # far more than it uses even so.
        if plan["env"].get("CUDA_VISIBLE_DEVICES"):
            memory = 0
        if processes:
            setrlimit(RLIMIT_NPROC, _soft(self._tasks() + processes, self._own_processes))
        if memory:
            setrlimit(RLIMIT_DATA, _soft(memory, self._own_memory))
        if 0 < cpu < len(self._cores):
            os.sched_setaffinity(0, self._some_cores(cpu))
        try:
            yield
        finally:
            if processes:
                setrlimit(RLIMIT_NPROC, self._own_processes)
            if memory:
                setrlimit(RLIMIT_DATA, self._own_memory)
            if 0 < cpu < len(self._cores):
                os.sched_setaffinity(0, self._cores)

    def _tasks(self) -> int:
        """How many the machine runs now. The limit counts all of the user's, so it must lie above what is there."""
        return int(os.pread(self._load, 128, 0).split()[3].partition(b"/")[2])

    def _some_cores(self, cpu: float) -> set[int]:
        """As many as it may use, rounded up, beginning at another one each time."""
        cores = sorted(self._cores)
        first, wanted = next(_turn), -(-cpu // 1)
        return {cores[(first + number) % len(cores)] for number in range(int(wanted))}


def _soft(value: int, own: tuple[int, int]) -> tuple[int, int]:
    hard = own[1]
    return (value if hard < 0 else min(value, hard), hard)
