"""What one replica needs: the meaning behind `2U4G1P`, flavors and machine types.

All are whole numbers (millicores, bytes), so that parts add up exactly to the whole.
"""

from typing import NamedTuple

import msgspec
from msgspec.structs import force_setattr

GIB = 1 << 30
CORE = 1000
"""Millicores."""


class Share(NamedTuple):
    """What a replica is charged for when the scheduler places it."""

    millicores: int
    memory: int
    gpus: int

    def __add__(self, other: object) -> "Share":
        if not isinstance(other, Share):
            return NotImplemented
        return Share(self.millicores + other.millicores, self.memory + other.memory, self.gpus + other.gpus)

    def __sub__(self, other: "Share") -> "Share":
        return Share(self.millicores - other.millicores, self.memory - other.memory, self.gpus - other.gpus)

    def times(self, count: int) -> "Share":
        return Share(self.millicores * count, self.memory * count, self.gpus * count)

    def fits(self, free: "Share") -> bool:
        """Free GPUs may be negative, which does not matter to a share without GPUs."""
        gpus = not self.gpus or self.gpus <= free.gpus
        return gpus and self.millicores <= free.millicores and self.memory <= free.memory


Parts = tuple[tuple[int, Share], ...]
"""A gang's shape: for each role the number of replicas and the share of one, the lead's role first."""


class Resources(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Thousandths of a CPU core, bytes of memory, accelerators. Zero CPU or memory means "no limit".

    `disk`: bytes for its workspace and /tmp; zero for as much as the settings allow. The scheduler ignores it.
    """

    millicores: int = 0
    memory: int = 0
    gpus: int = 0
    stored_cpu: float = msgspec.field(default=0, name="cpu")
    """Cores, as earlier versions stored them; converted to `millicores` on reading."""
    disk: int = 0

    def __post_init__(self) -> None:
        if self.stored_cpu:
            force_setattr(self, "millicores", millicores(self.stored_cpu))
            force_setattr(self, "stored_cpu", 0)

    @staticmethod
    def of(cores: float = 0, memory: int = 0, gpus: int = 0, disk: int = 0) -> "Resources":
        return Resources(millicores(cores), memory, gpus, disk=disk)

    @property
    def share(self) -> Share:
        """No limit is charged as one core and one GiB."""
        return Share(self.millicores or CORE, self.memory or GIB, self.gpus)


def millicores(cores: float) -> int:
    """The nearest whole number, but never 0, which would mean no limit."""
    return max(1, round(cores * CORE)) if cores > 0 else 0
