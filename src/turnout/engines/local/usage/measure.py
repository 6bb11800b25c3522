"""What a tree of processes uses at the moment, and what GPUs do."""

import contextlib
from collections.abc import Iterable
from typing import NamedTuple

from turnout.runner.keeper.processes import children


class Usage(NamedTuple):
    cpu: float
    """Seconds since it began."""
    memory: int
    io: int
    """Bytes read and written, also through pipes and sockets, as far as that may be seen."""


class GpuUsage(NamedTuple):
    """Percentages, on average over the devices."""

    busy: float
    memory: float


def of_tree(root: int) -> Usage | None:
    """Of a process and all below it; None: it is gone. A sandboxed one is bubblewrap's, seen from outside."""
    # Only here: a service that measures nothing does not need it.
    import psutil

    cpu, io, own, common = 0.0, 0, 0, 0
    waiting, seen = [root], 0
    while waiting:
        pid = waiting.pop()
        try:
            process = psutil.Process(pid)
            with process.oneshot():
                times, memory = process.cpu_times(), process.memory_info()
        except psutil.Error:
            continue
        waiting += children(pid)
        seen += 1
        # With what those used that have ended.
        cpu += times.user + times.system + times.children_user + times.children_system
        # What several map counts once.
        own += memory.rss - memory.shared
        common = max(common, memory.shared)
        with contextlib.suppress(psutil.Error):
            counters = process.io_counters()
            io += counters.read_chars + counters.write_chars
    return Usage(cpu, own + common, io) if seen else None


def of_gpus(devices: Iterable[int]) -> GpuUsage | None:
    """None: there are none, or the driver does not tell."""
    numbers = list(devices)
    if not numbers:
        return None
    import pynvml

    try:
        pynvml.nvmlInit()
        try:
            handles = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in numbers]
            busy = [pynvml.nvmlDeviceGetUtilizationRates(handle).gpu for handle in handles]
            memory = [pynvml.nvmlDeviceGetMemoryInfo(handle) for handle in handles]
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return None
    used = [100 * int(one.used) / int(one.total) for one in memory]
    return GpuUsage(sum(map(float, busy)) / len(busy), sum(used) / len(used))
