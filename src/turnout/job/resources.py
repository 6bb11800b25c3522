"""What one replica needs: the meaning behind `2U4G1P`, flavors and machine types."""

from typing import NamedTuple

import msgspec

GIB = 1 << 30


class Share(NamedTuple):
    """What a replica counts for when the queue adds up who fits where."""

    cpu: float
    memory: int
    gpus: int

    def __add__(self, other: object) -> "Share":
        if not isinstance(other, Share):
            return NotImplemented
        return Share(self.cpu + other.cpu, self.memory + other.memory, self.gpus + other.gpus)

    def __sub__(self, other: "Share") -> "Share":
        return Share(self.cpu - other.cpu, self.memory - other.memory, self.gpus - other.gpus)

    def fits(self, room: "Share") -> bool:
        return self.cpu <= room.cpu and self.memory <= room.memory and self.gpus <= room.gpus


class Resources(msgspec.Struct, frozen=True, omit_defaults=True):
    """CPU cores, bytes of memory, accelerators. Zero CPU or memory means "no limit"."""

    cpu: float = 0
    memory: int = 0
    gpus: int = 0
    gpu_kind: str = ""

    @property
    def share(self) -> Share:
        """No limit is counted as one core and one GiB."""
        return Share(self.cpu or 1, self.memory or GIB, self.gpus)
