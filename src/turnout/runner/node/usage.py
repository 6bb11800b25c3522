"""What the program's processes use."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from typing import Dict, List, NamedTuple, Optional, Tuple

from . import tree
from .plan import Plan
from .settings import find_program

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_IDLE_CORES = 0.001
"""A thread that only wakes up and sleeps again is idle."""
_GPU_SECONDS = 10

Sample = Dict[str, object]


class TreeUsage(NamedTuple):
    cpu: float
    """Seconds since the start, with those of ended children."""
    memory: int
    io: int


class Usage:
    def __init__(self, plan: Plan, env: Dict[str, str]) -> None:
        self._cores = plan.cores or float(len(os.sched_getaffinity(0)))
        self._memory = min(plan.memory or _total_memory(), _total_memory())
        self._gpus = _Gpus(env)
        self._at = 0
        self.begin()

    def begin(self) -> None:
        """Call it when the program starts."""
        now = time.monotonic()
        self._sampled: Tuple[float, float] = (now, 0.0)
        self._active_at = now
        self._active: Optional[TreeUsage] = None

    def idle(self) -> float:
        """Seconds since a process of the program last used the CPU or did I/O, as far as earlier calls have seen."""
        now, used = time.monotonic(), measure(tree.descendants())
        before = self._active
        quiet = (
            before is not None
            and 0 <= used.cpu - before.cpu <= _IDLE_CORES * (now - self._active_at)
            and used.io == before.io
            and not self._gpus.busy
        )
        if not quiet:
            self._active_at, self._active = now, used
        return now - self._active_at

    def sample(self) -> Sample:
        now, used = time.monotonic(), measure(tree.descendants())
        since, cpu = self._sampled
        self._sampled = (now, used.cpu)
        cores = max(used.cpu - cpu, 0) / max(now - since, 0.001)
        gpu, gpu_memory = self._gpus.measure()
        self._at = max(time.time_ns(), self._at + 1)
        return {
            "at": self._at,
            "cpu": round(min(100 * cores / self._cores, 100), 2),
            "memory": round(min(100 * used.memory / self._memory, 100), 2),
            "gpu": gpu,
            "gpu_memory": gpu_memory,
        }


def measure(pids: List[int]) -> TreeUsage:
    cpu, io, private, shared = 0.0, 0, 0, 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            cpu += sum(map(int, tree.stat_fields(pid)[11:15])) / _TICKS
            with open(f"/proc/{pid}/statm", "rb") as file:
                resident, common = map(int, file.read().split()[1:3])
            # Shared memory counts once.
            private += (resident - common) * _PAGE
            shared = max(shared, common * _PAGE)
            with open(f"/proc/{pid}/io", "rb") as file:
                io += sum(int(line.split()[1]) for line in file.readlines()[:2])
    return TreeUsage(cpu, private + shared, io)


class _Gpus:
    """Percentages by nvidia-smi, averaged over the devices of this replica."""

    def __init__(self, env: Dict[str, str]) -> None:
        self._program = find_program("nvidia-smi")
        self._devices = env.get("CUDA_VISIBLE_DEVICES")
        self.busy = False

    def measure(self) -> Tuple[Optional[float], Optional[float]]:
        if not self._program or self._devices in ("", "-1", "NoDevFiles"):
            return None, None
        command = [self._program, "--query-gpu=utilization.gpu,memory.used,memory.total"]
        command += ["--format=csv,noheader,nounits"]
        command += [f"--id={self._devices}"] if self._devices else []
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=_GPU_SECONDS,
                check=False,
            )
            rows = [[float(cell) for cell in line.split(",")] for line in done.stdout.decode().splitlines()]
            busy = [row[0] for row in rows]
            memory = [100 * row[1] / row[2] for row in rows]
        except (OSError, ValueError, IndexError, ZeroDivisionError, subprocess.SubprocessError):
            return None, None
        if not rows:
            return None, None
        self.busy = any(busy)
        return sum(busy) / len(busy), sum(memory) / len(memory)


def _total_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * _PAGE
