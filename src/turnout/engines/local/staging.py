"""Mounts that cannot be bound, because they lie in a real object store: copied here before the start, brought back
while the job runs and at its end. And logs that are wanted as files in a bucket.

Which attempts have something to bring back is written down before their first process starts, without any credentials,
so that a service that was killed goes on with it.
"""

import asyncio
import contextlib
import logging
import os
import shutil
from pathlib import Path
from typing import Any, Protocol

import msgspec

from turnout.engines.local.account import Account
from turnout.engines.local.export import Exported
from turnout.engines.local.mover import Item, Moved, Mover, NotMoved
from turnout.errors import TurnoutError
from turnout.job import Attempt, Launch, Mount, to_uuid
from turnout.paths import Paths
from turnout.runner.keeper.mounts import open_source
from turnout.runner.plan import Bind

_log = logging.getLogger(__name__)

_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class BoundMount(Protocol):
    @property
    def root(self) -> Path: ...
    @property
    def parts(self) -> tuple[str, ...]: ...
    @property
    def read_only(self) -> bool: ...


class Storage(Protocol):
    """What the engine needs of the storage room: a directory on this machine for a mount's source.

    `transfer` is not None for those that have to be copied: how they are reached, credentials and all. `open_object` is
    a descriptor for those that are one object and not a directory.
    """

    def bind(self, source: str, project: str, read_only: bool) -> BoundMount: ...
    def transfer(self, source: str, project: str) -> dict[str, Any] | None: ...
    def open_object(self, source: str, project: str) -> int | None: ...


class _Back(msgspec.Struct):
    """One that is brought back."""

    number: int
    source: str
    period: float


class _Logs(msgspec.Struct):
    to: str
    names: dict[str, str]
    """Replica → file."""
    period: float


class _Plan(msgspec.Struct):
    project: str
    back: list[_Back]
    logs: _Logs | None = None

    @property
    def period(self) -> float:
        """0: nothing is brought back before the end."""
        periods = [one.period for one in (*self.back, *([self.logs] if self.logs else [])) if one.period > 0]
        return min(periods, default=0)


class Staging:
    def __init__(self, paths: Paths, storage: Storage, mover: Mover, account: Account) -> None:
        self._account = account
        self._exported: dict[Attempt, list[Exported]] = {}
        self._paths = paths
        self._storage = storage
        self._mover = mover
        self._watching: dict[Attempt, asyncio.Task[None]] = {}
        self._unsaved: set[Attempt] = set()
        """Their results could not be brought back: here is the only place where they are."""

    def wanted(self, launch: Launch) -> list[int]:
        """The numbers of the mounts that cannot be bound as they are. Raises TurnoutError."""
        mounts = enumerate(launch.spec.mounts)
        return [number for number, mount in mounts if self._must_come(mount, launch.project)]

    def _must_come(self, mount: Mount, project: str) -> bool:
        if self._storage.transfer(mount.source, project) is not None:
            return True
        single = self._storage.open_object(mount.source, project) if mount.read_only else None
        if single is not None:
            os.close(single)
        return single is not None

    async def fetch(self, launch: Launch, wanted: list[int]) -> dict[int, Bind]:
        """Raises TurnoutError."""
        mounts = launch.spec.mounts
        here = self._paths.copies(launch.attempt)
        back = [_Back(n, mounts[n].source, mounts[n].period) for n in wanted if not mounts[n].read_only]
        plan = _Plan(launch.project, back, _logs(launch))
        if plan.back or plan.logs:
            await asyncio.to_thread(self._write, launch.attempt, plan)
        for path in (here, *(here / str(number) for number in wanted)) if wanted else ():
            self._make(path)
        distant = [n for n in wanted if mounts[n].fetch and not self._link(launch, n, mounts[n])]
        if distant:
            await self._mover.fetch([self._in(launch, number, mounts[number]) for number in distant])
        return {n: Bind(str(here), (str(n),), mounts[n].target, mounts[n].read_only) for n in wanted}

    def watch(self, attempt: Attempt) -> None:
        """Bring back what changes while it runs."""
        plan = self._read(attempt)
        if plan is None or attempt in self._watching:
            return
        if plan.period:
            self._watching[attempt] = asyncio.create_task(self._repeat(attempt, plan))

    async def save(self, attempt: Attempt) -> str:
        """All that has changed; what was moved, for people. Raises TurnoutError."""
        self._unwatch(attempt)
        plan = self._read(attempt)
        if plan is None:
            return ""
        try:
            moved = await self._bring_back(attempt, plan, final=True)
        except TurnoutError as error:
            self._unsaved.add(attempt)
            kept = f"; what it wrote is kept in {self._paths.copies(attempt)} until the job is deleted"
            raise NotMoved(error.message + (kept if plan.back else "")) from error
        if not moved.files:
            return ""
        places = ", ".join(back.source for back in plan.back) or (plan.logs.to if plan.logs else "")
        files = "1 file" if moved.files == 1 else f"{moved.files} files"
        return f"{files} ({moved.bytes} bytes) went to {places}"

    def forget(self, attempt: Attempt, keep: bool) -> None:
        self._unwatch(attempt)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._file(attempt))
        self._exported.pop(attempt, None)
        keep = keep or attempt in self._unsaved
        self._unsaved.discard(attempt)
        here = [
            path for path in (self._paths.copies(attempt), self._paths.exported(attempt)) if path.exists()
        ]
        if not keep and here:
            asyncio.get_running_loop().run_in_executor(None, _remove, here)

    def remove(self, attempts: list[Attempt]) -> None:
        """What was kept for somebody to look into."""
        for attempt in attempts:
            _remove([self._paths.copies(attempt), self._paths.exported(attempt)])

    async def close(self) -> None:
        for task in self._watching.values():
            task.cancel()
        await self._mover.close()

    def _link(self, launch: Launch, number: int, mount: Mount) -> bool:
        """One object of an embedded bucket, in a directory of its own: by another name, not by a copy."""
        if self._storage.transfer(mount.source, launch.project) is not None:
            return False
        object_ = self._storage.open_object(mount.source, launch.project)
        if object_ is None:
            raise NotMoved(f"{mount.source!r} has just gone")
        directory = os.open(self._copy(launch.attempt, number), _DIRECTORY)
        try:
            name = os.path.basename(mount.source.rstrip("/"))
            with contextlib.suppress(FileExistsError):
                # Only with a directory's descriptor does it follow what /proc shows as a link.
                os.link(f"/proc/self/fd/{object_}", name, dst_dir_fd=directory, follow_symlinks=True)
        finally:
            os.close(directory)
            os.close(object_)
        return True

    def _in(self, launch: Launch, number: int, mount: Mount) -> Item:
        # One that the job may write to is made by the job if it is missing, as an embedded one is.
        return self._reach(launch.project, mount.source) | {
            "to": self._copy(launch.attempt, number),
            "state": self._state(launch.attempt, number),
            "optional": not mount.read_only,
        }

    def _out(self, attempt: Attempt, plan: _Plan, backs: list[_Back]) -> list[Item]:
        return [
            self._reach(plan.project, back.source)
            | {"from": self._copy(attempt, back.number), "state": self._state(attempt, back.number)}
            for back in backs
            # It is not there if the service was killed before anything began.
            if os.path.exists(self._copy(attempt, back.number))
        ]

    def _reach(self, project: str, source: str) -> dict[str, Any]:
        found = self._storage.transfer(source, project)
        if found is None:
            raise NotMoved(f"{source!r} is not in an object store any more: the settings have changed")
        return found

    async def _repeat(self, attempt: Attempt, plan: _Plan) -> None:
        while True:
            await asyncio.sleep(plan.period)
            try:
                await self._bring_back(attempt, plan, final=False)
            except (TurnoutError, OSError) as error:
                # The next time may go well, and the last time tells.
                _log.warning("results of %s: %s", attempt, error)

    async def _bring_back(self, attempt: Attempt, plan: _Plan, *, final: bool) -> Moved:
        items = self._out(attempt, plan, [back for back in plan.back if final or back.period > 0])
        if plan.logs and (final or plan.logs.period > 0):
            items += await asyncio.to_thread(self._export, attempt, plan.project, plan.logs, final)
        return await self._mover.bring_back(items, final=final) if items else Moved()

    def _export(self, attempt: Attempt, project: str, logs: _Logs, final: bool) -> list[Item]:
        """Writes the logs; what is left to move. Raises TurnoutError or OSError."""
        exported = self._exported.get(attempt)
        if exported is None:
            names = logs.names.items()
            exported = [Exported(self._paths.replica(attempt, replica), name) for replica, name in names]
            self._exported[attempt] = exported
        reach = self._storage.transfer(logs.to, project)
        if reach is None:
            bound = self._storage.bind(logs.to, project, read_only=False)
            directory = open_source((str(bound.root), bound.parts))
        else:
            self._paths.exported(attempt).mkdir(parents=True, exist_ok=True)
            directory = os.open(self._paths.exported(attempt), os.O_PATH | os.O_CLOEXEC)
        try:
            for one in exported:
                one.write(lambda name: self._open(directory, name), final=final)
        finally:
            os.close(directory)
        if reach is None:
            return []
        self._make(self._paths.copies(attempt))
        state = str(self._paths.copies(attempt) / "logs.state")
        return [reach | {"from": str(self._paths.exported(attempt)), "state": state, "growing": True}]

    def _open(self, directory: int, name: str) -> int:
        """No link is followed, and nothing is opened that would make us wait."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(name, flags, 0o644, dir_fd=directory)
        if self._account.other:
            os.fchown(fd, self._account.uid, self._account.gid)
        return fd

    def _unwatch(self, attempt: Attempt) -> None:
        task = self._watching.pop(attempt, None)
        if task:
            task.cancel()

    def _make(self, path: Path) -> None:
        """For the mover, which is the job's user. What is above is ours: no job can put a link there."""
        path.parent.mkdir(exist_ok=True)
        path.mkdir(exist_ok=True)
        if self._account.other:
            os.chown(path, self._account.uid, self._account.gid, follow_symlinks=False)

    def _copy(self, attempt: Attempt, number: int) -> str:
        return str(self._paths.copies(attempt) / str(number))

    def _state(self, attempt: Attempt, number: int) -> str:
        return str(self._paths.copies(attempt) / f"{number}.state")

    def _file(self, attempt: Attempt) -> Path:
        return self._paths.staging / f"{attempt}.json"

    def _read(self, attempt: Attempt) -> _Plan | None:
        try:
            return msgspec.json.decode(self._file(attempt).read_bytes(), type=_Plan)
        except FileNotFoundError:
            return None

    def _write(self, attempt: Attempt, plan: _Plan) -> None:
        """Whole or not at all, and on disk."""
        self._paths.staging.mkdir(mode=0o700, exist_ok=True)
        fresh = self._file(attempt).with_suffix(".new")
        with fresh.open("wb") as file:
            file.write(msgspec.json.encode(plan))
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(self._file(attempt))


def _logs(launch: Launch) -> _Logs | None:
    wanted = launch.spec.logs
    if wanted is None:
        return None
    job = to_uuid(launch.attempt.job)
    names = {str(name): wanted.name.format(id=job, replica=name) for name, _ in launch.replicas()}
    return _Logs(wanted.to, names, wanted.period)


def _remove(paths: list[Path]) -> None:
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
