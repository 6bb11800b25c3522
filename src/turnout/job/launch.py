"""What an engine needs to start a gang, and what the gang's members need to reach each other."""

from typing import NamedTuple

import msgspec

from turnout.job.spec import Role, Spec


class Attempt(NamedTuple):
    """One run of a job's gang. Its text form, `<job>.<number>`, names its directory and its journal records."""

    job: int
    number: int

    def __str__(self) -> str:
        return f"{self.job}.{self.number}"

    @staticmethod
    def parse(text: str) -> "Attempt":
        job, _, number = text.partition(".")
        return Attempt(int(job), int(number))


class ReplicaName(NamedTuple):
    """`master-0`, `worker-3`: unique within an attempt."""

    role: str
    index: int  # pyright: ignore[reportIncompatibleMethodOverride] (a name is never searched)

    def __str__(self) -> str:
        return f"{self.role}-{self.index}"

    @staticmethod
    def parse(text: str) -> "ReplicaName":
        role, _, index = text.rpartition("-")
        return ReplicaName(role, int(index))


class Launch(msgspec.Struct, frozen=True, gc=False):
    """A gang that was placed and committed. Starting it is idempotent by (attempt, replica)."""

    attempt: Attempt
    project: str
    dialect: str
    name: str
    spec: Spec
    gpus: dict[str, tuple[int, ...]] = {}
    """The GPU numbers of each replica, by its name."""

    def replicas(self) -> list[tuple[ReplicaName, Role]]:
        """Every member in the order of ranks, the lead first."""
        roles = sorted(self.spec.roles, key=lambda role: not role.leads)
        return [(ReplicaName(role.name, index), role) for role in roles for index in range(role.replicas)]


class Peer(NamedTuple):
    """The address of a replica: `ports[0]` is in TF_CONFIG, the lead's `ports[1]` is MASTER_PORT."""

    name: ReplicaName
    host: str
    address: str
    ports: tuple[int, ...]


Gang = tuple[Peer, ...]
"""The whole gang, in the order of Launch.replicas()."""
