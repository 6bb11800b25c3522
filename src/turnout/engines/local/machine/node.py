"""The resources of this machine: cores, memory, GPUs."""

import contextlib
import glob
import logging
import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from turnout.config import LocalEngineSettings
from turnout.job import Node
from turnout.job.resources import millicores
from turnout.runner.gpu_driver import GpuDriver, parse

# Cgroup files with the memory limit of the service, and so of everything that it starts: v2, then v1.
_MEMORY_LIMITS = ("/sys/fs/cgroup{v2}/memory.max", "/sys/fs/cgroup/memory{v1}/memory.limit_in_bytes")


_CDI = ("/etc/cdi", "/var/run/cdi")
_log = logging.getLogger(__name__)


class Gpus(NamedTuple):
    count: int
    devices: tuple[str, ...] = ()
    """Device files that a program needs besides the GPU's own; empty if the GPUs are simulated."""


def node(settings: LocalEngineSettings, gpus: Gpus) -> Node:
    promised = millicores(len(os.sched_getaffinity(0)) * settings.overcommit)
    return Node(socket.gethostname(), promised, memory(), gpus.count)


def memory() -> int:
    """The machine's memory, or the limit of the service's own cgroup if that is less."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    own = _own_cgroups()
    for pattern in _MEMORY_LIMITS:
        with contextlib.suppress(OSError, ValueError):
            total = min(total, int(Path(pattern.format_map(own)).read_text()))
    return total


def find_gpus(wanted: str | int) -> Gpus:
    """A number simulates so many GPUs, so that their assignment can be tested without any."""
    if isinstance(wanted, int):
        return Gpus(wanted)
    if not os.path.exists("/dev/nvidiactl"):
        return Gpus(0)
    return _nvidia()


def _nvidia() -> Gpus:
    # Imported only if there is a driver.
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return Gpus(0)
    try:
        count = pynvml.nvmlDeviceGetCount()
    finally:
        pynvml.nvmlShutdown()
    return Gpus(count, tuple(_shared_devices()))


def _shared_devices() -> list[str]:
    names = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
    devices = [f"/dev/{name}" for name in names] + sorted(glob.glob("/dev/nvidia-caps/*"))
    return [device for device in devices if os.path.exists(device)]


def gpu_driver(directories: Iterable[str] = _CDI) -> GpuDriver | None:
    """What images need to use the GPUs, as NVIDIA's container toolkit has described it; None: it has not."""
    import yaml  # only if there are GPUs

    documents: list[dict[str, Any]] = []
    for directory in directories:
        for path in sorted(Path(directory).glob("*")):
            if path.suffix in (".yaml", ".yml", ".json"):
                try:
                    documents.append(yaml.safe_load(path.read_text()))
                except (OSError, yaml.YAMLError) as error:
                    _log.warning("%s is not read: %s", path, error)
    try:
        return parse(documents)
    except ValueError as error:
        _log.warning("a file in %s: %s", " or ".join(directories), error)
        return None


def _own_cgroups() -> dict[str, str]:
    """The cgroup of this process in the unified hierarchy (`v2`) and in the memory controller's (`v1`)."""
    found = {"v1": "", "v2": ""}
    with contextlib.suppress(OSError), open("/proc/self/cgroup") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            if controllers == "":
                found["v2"] = path.rstrip("/")
            elif "memory" in controllers.split(","):
                found["v1"] = path.rstrip("/")
    return found
