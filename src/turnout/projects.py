"""The settings in `[projects.X]` and `[keys.X]`: what a project or a key may use at a time; a project's weight."""

import math
from collections.abc import Mapping

import msgspec

from turnout.errors import Misconfigured

EVERY_OTHER = "*"
"""`[projects."*"]` and `[keys."*"]` are for each one that has no table of its own."""
ROOT = "root"
"""The owner of jobs that the root key creates. Only a table of its own limits it."""


class KeyQuota(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """None: no limit. Above a limit for running jobs a job waits; above `waiting` it is refused."""

    jobs: int | None = None
    """How many of its jobs may run at a time."""
    cpus: float | None = None
    """How much all of its running jobs together may ask for."""
    memory: int | None = None
    """Bytes."""
    gpus: int | None = None
    waiting: int | None = None
    """How many of its jobs may wait at a time."""

    @property
    def limits_running(self) -> bool:
        """Whether it limits what running jobs use."""
        return not (self.jobs is None and self.cpus is None and self.memory is None and self.gpus is None)


class Quota(KeyQuota, frozen=True):
    """Of a project."""

    waiting: int | None = 100_000
    """Each job that waits takes memory of the service."""
    weight: float = 1
    """Its part of the machine beside other projects that have jobs of the same priority."""


class Quotas:
    def __init__(
        self,
        projects: Mapping[str, Quota] | None = None,
        keys: Mapping[str, KeyQuota] | None = None,
    ) -> None:
        self._projects = projects or {}
        self._keys = keys or {}
        self._other = self._projects.get(EVERY_OTHER, Quota())

    def of(self, project: str) -> Quota:
        return self._projects.get(project, self._other)

    def of_key(self, owner: str) -> KeyQuota | None:
        """None: it has none."""
        if not owner:
            return None
        return self._keys.get(owner) or (self._keys.get(EVERY_OTHER) if owner != ROOT else None)

    def table(self, project: str) -> str:
        """The table of the settings that has the project's quota."""
        return _table("projects", project if project in self._projects else EVERY_OTHER)

    def key_table(self, owner: str) -> str:
        return _table("keys", owner if owner in self._keys else EVERY_OTHER)


def check(projects: Mapping[str, Quota], keys: Mapping[str, KeyQuota]) -> None:
    """Raises Misconfigured."""
    for name, quota in projects.items():
        _check(f"[projects.{name}]", quota)
        if not 0 < quota.weight < math.inf:
            raise Misconfigured(f"[projects.{name}] weight must be more than 0")
    for name, quota in keys.items():
        _check(f"[keys.{name}]", quota)


def _check(table: str, quota: KeyQuota) -> None:
    for field in KeyQuota.__struct_fields__:
        limit = getattr(quota, field)
        if limit is not None and not 0 <= limit < math.inf:
            raise Misconfigured(f"{table} {field} must be 0 or more; leave it out for no limit")


def _table(kind: str, name: str) -> str:
    return f'[{kind}."{name}"]' if name == EVERY_OTHER else f"[{kind}.{name}]"
