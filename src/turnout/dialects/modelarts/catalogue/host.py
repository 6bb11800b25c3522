"""What this machine has: the architecture of its CPUs and the model of its GPUs, in ModelArts' words."""

import platform
import re
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

GPUS = Path("/proc/driver/nvidia/gpus")
"""NVIDIA's driver has a directory for each GPU here."""

_ARCHITECTURES = {"x86_64": "x86", "aarch64": "arm"}
_MODEL = re.compile(r"^Model:\s*(.+?)\s*$", re.MULTILINE)
_MEMORY = re.compile(r"(\d+) ?GB")


class Gpu(NamedTuple):
    name: str
    memory: str
    """`32GB`. Empty if the name of the model does not say it."""


def cpu_arch() -> str:
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


@lru_cache(maxsize=4)
def gpu(directory: Path = GPUS) -> Gpu | None:
    """The model of the first GPU. None if the driver does not report one."""
    for file in sorted(directory.glob("*/information")):
        try:
            model = _MODEL.search(file.read_text(errors="replace"))
        except OSError:
            continue
        if model:
            memory = _MEMORY.search(model[1])
            return Gpu(model[1].replace(" ", "-"), f"{memory[1]}GB" if memory else "")
    return None
