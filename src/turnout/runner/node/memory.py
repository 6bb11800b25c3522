"""Whether the kernel killed a process because the memory of this cgroup ran out; and a limit of our own."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Iterator, Optional

from . import tree, usage

_CHECK_SECONDS = 0.25
_NEVER = float("inf")


class MemoryLimit:
    """What the processes of the program may use together. For clusters that do not enforce it themselves."""

    def __init__(self, limit: int) -> None:
        """0: no limit."""
        self._limit = limit
        self.due = time.monotonic() if limit else _NEVER
        """When it has to be checked again."""

    def exceeded(self) -> bool:
        if time.monotonic() < self.due:
            return False
        self.due = time.monotonic() + _CHECK_SECONDS
        return usage.measure(tree.descendants()).memory > self._limit

    @property
    def message(self) -> str:
        return f"it used more memory than the {self._limit >> 20} MiB that it had asked for"


def kills() -> Optional[int]:
    """How many processes of this cgroup were killed for lack of memory so far; None: the kernel does not say."""
    for path in _counters():
        with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as file:
            for line in file:
                name, _, value = line.partition(" ")
                if name == "oom_kill":
                    return int(value)
    return None


def rose(before: Optional[int], after: Optional[int]) -> bool:
    return before is not None and after is not None and after > before


def _counters() -> Iterator[str]:
    """Files with a line `oom_kill <n>`: of cgroup v1, then of v2."""
    with contextlib.suppress(OSError), open("/proc/self/cgroup", encoding="utf-8") as file:
        groups = [line.rstrip("\n").split(":", 2) for line in file]
        for _, controllers, group in groups:
            if "memory" in controllers.split(","):
                for mount in _mounts("cgroup", "memory"):
                    yield from _below(mount, group, "memory.oom_control")
        for number, controllers, group in groups:
            if number == "0" and not controllers:
                for mount in _mounts("cgroup2", ""):
                    yield from _below(mount, group, "memory.events")


def _below(mount: str, group: str, name: str) -> Iterator[str]:
    # In a container the mount may show the container's own group as its root.
    yield os.path.join(mount, group.lstrip("/"), name)
    yield os.path.join(mount, name)


def _mounts(kind: str, option: str) -> Iterator[str]:
    with contextlib.suppress(OSError), open("/proc/self/mountinfo", encoding="utf-8") as file:
        for line in file:
            fields, _, rest = line.partition(" - ")
            found, _, options = rest.split()[:3]
            if found == kind and (not option or option in options.split(",")):
                yield fields.split()[4]
