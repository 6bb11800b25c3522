"""Mounts that cannot be bound, because they lie in a real object store, or hold what is sealed or is to be: copied here
before the start, brought back while the job runs and at its end. And logs that are wanted as files in a bucket.

Which attempts have something to bring back is written down before their first process starts, without any credentials,
so that a service that was killed goes on with it. Of a job that has a key that is sealed too, and its copies are gone
when it has ended, whatever became of them.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import threading
from pathlib import Path
from typing import Any, Protocol

import msgspec

from turnout.engines.local.account import Account
from turnout.engines.local.export import Exported
from turnout.engines.local.mover import Item, Moved, Mover, NotMoved
from turnout.engines.local.near_copies import Near, NearCopy
from turnout.errors import TurnoutError
from turnout.job import Attempt, Launch, Mount, to_uuid
from turnout.paths import Paths
from turnout.runner.keeper.mounts import open_source
from turnout.runner.plan import Bind
from turnout.vault import Header, KeyGone, KeyRing, is_sealed

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
    def near(self, source: str, project: str) -> Near | None: ...


class _Back(msgspec.Struct):
    """One that is brought back."""

    number: int
    source: str
    period: float
    near: bool = False
    """It lies in an embedded bucket."""


class _Logs(msgspec.Struct):
    to: str
    names: dict[str, str]
    """Replica → file."""
    period: float


class _Plan(msgspec.Struct):
    project: str
    back: list[_Back]
    logs: _Logs | None = None
    key: str = ""
    wrapped_key: str = ""

    @property
    def period(self) -> float:
        """0: nothing is brought back before the end."""
        periods = [one.period for one in (*self.back, *([self.logs] if self.logs else [])) if one.period > 0]
        return min(periods, default=0)


class Staging:
    def __init__(self, paths: Paths, storage: Storage, mover: Mover, account: Account, ring: KeyRing) -> None:
        self._ring = ring
        self._copying = threading.Lock()
        self._account = account
        self._exported: dict[Attempt, list[Exported]] = {}
        self._paths = paths
        self._storage = storage
        self._mover = mover
        self._watching: dict[Attempt, asyncio.Task[None]] = {}
        self._unsaved: set[Attempt] = set()
        """Their results could not be brought back: here is the only place where they are."""
        self._have = _left_behind(paths)
        """Attempts that have something here: most have not, and cost nothing when they are forgotten."""

    def wanted(self, launch: Launch) -> list[int]:
        """The numbers of the mounts that cannot be bound as they are. Raises TurnoutError."""
        mounts = enumerate(launch.spec.mounts)
        return [number for number, mount in mounts if self._must_come(launch, mount)]

    def _must_come(self, launch: Launch, mount: Mount) -> bool:
        project = launch.project
        if self._storage.transfer(mount.source, project) is not None or self._is_near(launch, mount):
            return True
        single = self._storage.open_object(mount.source, project) if mount.read_only else None
        if single is not None:
            os.close(single)
        return single is not None

    async def fetch(self, launch: Launch, wanted: list[int]) -> dict[int, Bind]:
        """Raises TurnoutError."""
        self._have.add(str(launch.attempt))
        mounts = launch.spec.mounts
        here = self._paths.copies(launch.attempt)
        near = {n for n in wanted if self._is_near(launch, mounts[n])}
        back = [
            _Back(n, mounts[n].source, mounts[n].period, n in near) for n in wanted if not mounts[n].read_only
        ]
        plan = _Plan(launch.project, back, _logs(launch), launch.spec.key, launch.spec.wrapped_key)
        if plan.back or plan.logs or near or (plan.key and wanted):
            await asyncio.to_thread(self._write, launch.attempt, plan)
        for path in (here, *(here / str(number) for number in wanted)) if wanted else ():
            self._make(path)
        fetched = [n for n in wanted if mounts[n].fetch]
        distant = [n for n in fetched if n not in near and not self._link(launch, n, mounts[n])]
        for number in near.intersection(fetched):
            copy = self._near(launch.attempt, launch.project, number, mounts[number].source)
            await asyncio.to_thread(copy.fetch, self._account)
        if distant:
            await self._mover.fetch([self._in(launch, number, mounts[number]) for number in distant])
        return self.copies(launch, wanted)

    def copies(self, launch: Launch, wanted: list[int]) -> dict[int, Bind]:
        """Where `fetch` has put them."""
        mounts, here = launch.spec.mounts, self._paths.copies(launch.attempt)
        # Sealed objects may have come into a bucket since it was bound: it stays bound then.
        there = [n for n in wanted if (here / str(n)).exists()]
        return {n: Bind(str(here), (str(n),), mounts[n].target, mounts[n].read_only) for n in there}

    def watch(self, attempt: Attempt) -> None:
        """Bring back what changes while it runs."""
        try:
            plan = self._read(attempt)
        except KeyGone as error:
            _log.warning("results of %s: %s", attempt, error.message)
            return
        if plan is None or attempt in self._watching:
            return
        if plan.period:
            self._watching[attempt] = asyncio.create_task(self._repeat(attempt, plan))

    async def save(self, attempt: Attempt) -> str:
        """All that has changed; what was moved, for people. Raises TurnoutError."""
        self._unwatch(attempt)
        plan = None
        try:
            plan = self._read(attempt)
            moved = await self._bring_back(attempt, plan, final=True) if plan else Moved()
        except TurnoutError as error:
            raise NotMoved(error.message + await self._not_saved(attempt, plan)) from error
        if plan and plan.key:
            await asyncio.to_thread(_remove, [self._paths.copies(attempt)])
        if plan is None or not moved.files:
            return ""
        places = ", ".join(back.source for back in plan.back) or (plan.logs.to if plan.logs else "")
        files = "1 file" if moved.files == 1 else f"{moved.files} files"
        return f"{files} ({moved.bytes} bytes) went to {places}"

    async def _not_saved(self, attempt: Attempt, plan: _Plan | None) -> str:
        """What became of what it wrote, for people. No plan: its key is gone."""
        here = self._paths.copies(attempt)
        if plan is None or plan.key:
            await asyncio.to_thread(_remove, [here])
            return "; what it wrote is gone, as nothing of a job with a key stays behind readable"
        self._unsaved.add(attempt)
        return f"; what it wrote is kept in {here} until the job is deleted" if plan.back else ""

    def forget(self, attempt: Attempt, keep: bool) -> None:
        if str(attempt) not in self._have:
            return
        self._have.discard(str(attempt))
        self._unwatch(attempt)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._file(attempt))
            for state in self._paths.staging.glob(f"{attempt}.*.state"):
                state.unlink(missing_ok=True)
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
            if not back.near and os.path.exists(self._copy(attempt, back.number))
        ]

    def _is_near(self, launch: Launch, mount: Mount) -> bool:
        """Whether it lies in an embedded bucket that the job cannot have as it is. Raises TurnoutError."""
        near = self._storage.near(mount.source, launch.project)
        return near is not None and (bool(launch.spec.key) or near.holds_sealed())

    def _near(self, attempt: Attempt, project: str, number: int, source: str) -> NearCopy:
        near = self._storage.near(source, project)
        if near is None:
            raise NotMoved(f"{source!r} is not in an embedded bucket any more: the settings have changed")
        state = str(self._paths.staging / f"{attempt}.{number}.state")
        self._paths.staging.mkdir(mode=0o700, exist_ok=True)
        return NearCopy(near, source, self._copy(attempt, number), state)

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
        backs = [back for back in plan.back if final or back.period > 0]
        near = await asyncio.to_thread(self._bring_near, attempt, plan, backs, final)
        items = self._out(attempt, plan, backs)
        if plan.logs and (final or plan.logs.period > 0):
            items += await asyncio.to_thread(self._export, attempt, plan.project, plan.logs, final)
        far = await self._mover.bring_back(items, final=final) if items else Moved()
        return Moved(near.files + far.files, near.bytes + far.bytes)

    def _bring_near(self, attempt: Attempt, plan: _Plan, backs: list[_Back], final: bool) -> Moved:
        moved = Moved()
        backs = [back for back in backs if back.near and os.path.exists(self._copy(attempt, back.number))]
        if not backs:
            return moved
        key = self._ring.data_key(Header.of(plan.key, plan.wrapped_key)) if plan.key else None
        # One that was called off goes on in its thread for a while.
        with self._copying:
            for back in backs:
                copy = self._near(attempt, plan.project, back.number, back.source)
                one = copy.bring_back(key, final=final)
                moved.files += one.files
                moved.bytes += one.bytes
        return moved

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
        """Raises KeyGone."""
        try:
            data = self._file(attempt).read_bytes()
        except FileNotFoundError:
            return None
        data = self._ring.opened(data, _about(attempt)) if is_sealed(data) else data
        return msgspec.json.decode(data, type=_Plan)

    def _write(self, attempt: Attempt, plan: _Plan) -> None:
        """Whole or not at all, and on disk."""
        self._paths.staging.mkdir(mode=0o700, exist_ok=True)
        fresh = self._file(attempt).with_suffix(".new")
        data = msgspec.json.encode(plan)
        if plan.key:
            data = self._ring.data_key(Header.of(plan.key, plan.wrapped_key)).seal(data, _about(attempt))
        with fresh.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(self._file(attempt))


def _left_behind(paths: Paths) -> set[str]:
    """Attempts of an earlier service. A file is named `<job>.<attempt>.…`, a directory `<job>.<attempt>`."""
    found: set[str] = set()
    for directory in (
        paths.staging,
        paths.copies(Attempt(0, 0)).parent,
        paths.exported(Attempt(0, 0)).parent,
    ):
        with contextlib.suppress(FileNotFoundError):
            found.update(".".join(name.split(".")[:2]) for name in os.listdir(directory))
    return found


def _logs(launch: Launch) -> _Logs | None:
    wanted = launch.spec.logs
    if wanted is None:
        return None
    job = to_uuid(launch.attempt.job)
    names = {str(name): wanted.name.format(id=job, replica=name) for name, _ in launch.replicas()}
    return _Logs(wanted.to, names, wanted.period)


def _about(attempt: Attempt) -> str:
    return f"staging of {attempt}"


def _remove(paths: list[Path]) -> None:
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
