"""The allowance of a gang: what it may use, and how long it may be idle. Its usage is measured against it.

The supervisor keeps it with the gang, so that a restarted service can go on measuring.
"""

import msgspec
from msgspec.structs import force_setattr

from turnout.job import Launch, ReplicaName
from turnout.job.resources import millicores


class Allowance(msgspec.Struct, frozen=True, omit_defaults=True):
    millicores: dict[str, int] = {}
    """By role; a missing role may use all cores."""
    memory: dict[str, int] = {}
    gpus: dict[str, tuple[int, ...]] = {}
    """Devices by replica."""
    hang_seconds: float | None = None
    stored_cpu: dict[str, float] = msgspec.field(default_factory=dict[str, float], name="cpu")
    """Cores by role, as earlier versions stored them; converted to `millicores` when it is read."""

    def __post_init__(self) -> None:
        if self.stored_cpu:
            whole = {role: millicores(cores) for role, cores in self.stored_cpu.items()}
            force_setattr(self, "millicores", whole)
            force_setattr(self, "stored_cpu", {})

    def devices(self, replica: ReplicaName) -> tuple[int, ...]:
        return self.gpus.get(str(replica), ())


def allowance(launch: Launch) -> Allowance | None:
    """None if it may use everything and be idle for as long as it likes."""
    cpu = {role.name: role.resources.millicores for role in launch.spec.roles if role.resources.millicores}
    memory = {role.name: role.resources.memory for role in launch.spec.roles if role.resources.memory}
    hang_seconds = launch.spec.policy.hang_seconds
    if not (cpu or memory or launch.gpus or hang_seconds):
        return None
    return Allowance(cpu, memory, launch.gpus, hang_seconds)
