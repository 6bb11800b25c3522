"""What a gang may use, and how long it may do nothing: what its usage is measured against.

The keeper keeps it with the gang, so that a service that was started again goes on measuring.
"""

import msgspec

from turnout.job import Launch, ReplicaName


class Allowance(msgspec.Struct, frozen=True, omit_defaults=True):
    cpu: dict[str, float] = {}
    """Cores by role; left out: all that there are."""
    memory: dict[str, int] = {}
    gpus: dict[str, tuple[int, ...]] = {}
    """Devices by replica."""
    hang_seconds: float | None = None

    def devices(self, replica: ReplicaName) -> tuple[int, ...]:
        return self.gpus.get(str(replica), ())


def allowance(launch: Launch) -> Allowance | None:
    """None: it may use whatever there is, and do nothing for as long as it likes."""
    cpu = {role.name: role.resources.cpu for role in launch.spec.roles if role.resources.cpu}
    memory = {role.name: role.resources.memory for role in launch.spec.roles if role.resources.memory}
    hang_seconds = launch.spec.policy.hang_seconds
    if not (cpu or memory or launch.gpus or hang_seconds):
        return None
    return Allowance(cpu, memory, launch.gpus, hang_seconds)
