"""The plan of what to save of a job: its writable copies and, if it asks for that, its logs.

The plan is written to disk before the first process starts, without credentials, so that a service that was killed can
continue. The plan of an encrypted job is encrypted.
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from turnout.job import Attempt, Launch, to_uuid
from turnout.storage import Copied, EmbeddedPath, Linked
from turnout.vault import Header, KeyRing, is_sealed


class MountToSave(msgspec.Struct):
    number: int
    source: str
    period: float
    """Seconds between saves while the job runs; 0: it is saved at the end only."""
    embedded: bool = msgspec.field(default=False, name="near")
    """Whether it is in an embedded bucket."""


class LogsToSave(msgspec.Struct):
    to: str
    names: dict[str, str]
    """The file of each replica."""
    period: float


class StagingPlan(msgspec.Struct):
    project: str
    mounts: list[MountToSave] = msgspec.field(name="back")
    logs: LogsToSave | None = None
    key: str = ""
    wrapped_key: str = ""

    @property
    def period(self) -> float:
        """The shortest of all; 0: nothing is saved before the end."""
        everything = (*self.mounts, *([self.logs] if self.logs else []))
        return min((part.period for part in everything if part.period > 0), default=0)


def plan_staging(launch: Launch, copied: Mapping[int, Copied | Linked]) -> StagingPlan:
    """`copied`: by number, the mounts that are copied or linked."""
    mounts = [
        MountToSave(number, mount.source, mount.period, embedded_path(resolved) is not None)
        for number, resolved in copied.items()
        if not (mount := launch.spec.mounts[number]).read_only
    ]
    return StagingPlan(launch.project, mounts, _logs(launch), launch.spec.key, launch.spec.wrapped_key)


def embedded_path(resolved: Copied | Linked) -> EmbeddedPath | None:
    """The path in an embedded bucket that is copied."""
    return resolved.path if isinstance(resolved, Copied) and isinstance(resolved.path, EmbeddedPath) else None


class PlanFiles:
    """The plans on disk. All calls block."""

    def __init__(self, directory: Path, ring: KeyRing) -> None:
        self._directory = directory
        self._ring = ring

    def read(self, attempt: Attempt) -> StagingPlan | None:
        """None: the attempt has no plan. Raises KeyGone."""
        try:
            data = self._file(attempt).read_bytes()
        except FileNotFoundError:
            return None
        data = self._ring.opened(data, _context(attempt)) if is_sealed(data) else data
        return msgspec.json.decode(data, type=StagingPlan)

    def write(self, attempt: Attempt, plan: StagingPlan) -> None:
        """Atomically, and synced to disk."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        fresh = self._file(attempt).with_suffix(".new")
        data = msgspec.json.encode(plan)
        if plan.key:
            data = self._ring.data_key(Header.of(plan.key, plan.wrapped_key)).seal(data, _context(attempt))
        with fresh.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(self._file(attempt))

    def remove(self, attempt: Attempt) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._file(attempt))
            for state in self._directory.glob(f"{attempt}.*.state"):
                state.unlink(missing_ok=True)

    def state_file(self, attempt: Attempt, number: int) -> str:
        """Where a copy of an embedded bucket records what it has transferred."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        return str(self._directory / f"{attempt}.{number}.state")

    def _file(self, attempt: Attempt) -> Path:
        return self._directory / f"{attempt}.json"


def remove_plans(directory: Path, attempts: set[str]) -> None:
    """Removes all files of these attempts."""
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(directory):
            if attempt_in(name) in attempts:
                (directory / name).unlink(missing_ok=True)


def attempt_in(name: str) -> str:
    """The attempt that a file (`<job>.<attempt>.…`) or a directory (`<job>.<attempt>`) belongs to."""
    return ".".join(name.split(".")[:2])


def _logs(launch: Launch) -> LogsToSave | None:
    wanted = launch.spec.logs
    if wanted is None:
        return None
    job = to_uuid(launch.attempt.job)
    names = {str(name): wanted.name.format(id=job, replica=name) for name, _ in launch.replicas()}
    return LogsToSave(wanted.to, names, wanted.period)


def _context(attempt: Attempt) -> str:
    """What the encryption binds the plan to. Never change it: plans on disk were encrypted with it."""
    return f"staging of {attempt}"
