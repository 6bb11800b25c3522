"""Measures what a tree of processes and GPUs use at the moment."""

import contextlib
from collections.abc import Iterable
from typing import NamedTuple

from turnout.runner.supervisor.procfs import children


class Usage(NamedTuple):
    cpu: float
    """Seconds of CPU time since the start."""
    memory: int
    io: int
    """Bytes read and written, also through pipes and sockets, of the processes whose counters are readable."""


class GpuUsage(NamedTuple):
    """Percentages, averaged over the devices."""

    busy: float
    memory: float


def measure_tree(root: int) -> Usage | None:
    """The usage of a process and its descendants; None: it has ended. For a sandbox, `root` is bubblewrap's process."""
    # Imported here: a service that measures nothing does not need it.
    import psutil

    cpu, io, private, shared = 0.0, 0, 0, 0
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
        # Including children that have ended.
        cpu += times.user + times.system + times.children_user + times.children_system
        # Shared memory counts once.
        private += memory.rss - memory.shared
        shared = max(shared, memory.shared)
        with contextlib.suppress(psutil.Error):
            counters = process.io_counters()
            io += counters.read_chars + counters.write_chars
    return Usage(cpu, private + shared, io) if seen else None


def measure_gpus(devices: Iterable[int]) -> GpuUsage | None:
    """None: there are no devices, or the driver does not say."""
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
    used = [100 * int(device.used) / int(device.total) for device in memory]
    return GpuUsage(sum(map(float, busy)) / len(busy), sum(used) / len(used))
