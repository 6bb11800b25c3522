"""Fetches mounts that cannot be bound before the start, and saves what changed while the job runs and at its end.

Those are mounts in remote stores, and in embedded buckets if objects in them or the job are encrypted. Also writes
logs to a bucket, if the job asks for that. The copies of an encrypted job are removed at its end in any case.
"""

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from turnout import pools
from turnout.engines.local.data.bucket_copies import BucketCopy
from turnout.engines.local.data.copies import DIRECTORY, CopyDirectories, remove_trees
from turnout.engines.local.data.stager_client import Item, StagerClients, TransferFailed, Transferred
from turnout.engines.local.data.staging_plan import (
    LogsToSave,
    MountToSave,
    PlanFiles,
    StagingPlan,
    embedded_path,
    plan_staging,
)
from turnout.engines.local.users.account import Accounts
from turnout.engines.log_export import ReplicaLogExport, open_log_file
from turnout.errors import Invalid, NotFound, TurnoutError, Unsupported
from turnout.job import Attempt, Launch, Mount
from turnout.paths import Paths
from turnout.runner.plan import Bind
from turnout.runner.supervisor.replicas.mounts import open_source
from turnout.storage import (
    Bound,
    Copied,
    EmbeddedPath,
    HostPath,
    Linked,
    Location,
    Mounted,
    RemotePath,
    Resolved,
)
from turnout.vault import Header, KeyGone, KeyRing

_log = logging.getLogger(__name__)


class MountSources(Protocol):
    """What the engine needs of `turnout.storage.Storage`."""

    def resolve(
        self, source: str, project: str, *, read_only: bool, encrypted: bool, required: bool, make: bool
    ) -> Resolved: ...
    def locate(self, source: str, project: str) -> Location: ...


class Staging:
    def __init__(
        self, paths: Paths, storage: MountSources, stagers: StagerClients, accounts: Accounts, ring: KeyRing
    ) -> None:
        self._paths = paths
        self._storage = storage
        self._stagers = stagers
        self._accounts = accounts
        self._ring = ring
        self._plans = PlanFiles(paths.staging, ring)
        self._directories = CopyDirectories(paths, accounts)
        self._copying = threading.Lock()
        self._log_exports: dict[Attempt, list[ReplicaLogExport]] = {}
        self._periodic_saves: dict[Attempt, asyncio.Task[None]] = {}
        self._unsaved: set[Attempt] = set()
        """Their results could not be saved: the copies on this machine are the only ones."""
        self._on_disk = self._directories.attempts()
        """Attempts that have files here. Most have none, and cost nothing when they are forgotten."""

    async def fetch(self, launch: Launch, resolved: Sequence[Resolved]) -> dict[int, Bind]:
        """Copies or links what cannot be bound. Returns the binds for those mounts. Raises TurnoutError."""
        attempt = launch.attempt
        self._on_disk.add(str(attempt))
        copied = self._copied(attempt, resolved)
        plan = plan_staging(launch, copied)
        if plan.mounts or plan.logs or any(map(embedded_path, copied.values())) or (plan.key and copied):
            await pools.disk.run(launch.project, self._plans.write, attempt, plan)
        if copied:
            account = self._directories.make(attempt, launch.project)
            for number, mount in copied.items():
                self._directories.make_copy(attempt, number, None if embedded_path(mount) else account)
        await self._fetch_all(launch, copied)
        return self.copies(launch, resolved)

    def copies(self, launch: Launch, resolved: Sequence[Resolved]) -> dict[int, Bind]:
        """The binds for what `fetch` has copied or linked."""
        mounts, directory = launch.spec.mounts, self._paths.copies(launch.attempt)
        # There is no copy if the first encrypted object came into a bucket after it was bound: it stays bound.
        existing = [n for n in self._copied(launch.attempt, resolved) if (directory / str(n)).exists()]
        return {n: Bind(str(directory), (str(n),), mounts[n].target, mounts[n].read_only) for n in existing}

    def _copied(self, attempt: Attempt, resolved: Sequence[Resolved]) -> dict[int, Copied | Linked]:
        """By number, the mounts that are copied or linked."""
        found: dict[int, Copied | Linked] = {}
        for number, mount in enumerate(resolved):
            match mount:
                case Copied() | Linked():
                    found[number] = mount
                case Bound(EmbeddedPath() as path) if os.path.exists(self._directories.path(attempt, number)):
                    # Its bucket did not exist when the copy was made, and has been made since.
                    found[number] = Copied(path)
                case _:
                    pass
        return found

    def watch(self, attempt: Attempt) -> None:
        """Saves changes periodically while the job runs, if its plan says so."""
        try:
            plan = self._plans.read(attempt)
        except KeyGone as error:
            _log.warning("the results of %s are not saved while it runs: %s", attempt, error.message)
            return
        if plan is None or attempt in self._periodic_saves:
            return
        if plan.period:
            self._periodic_saves[attempt] = asyncio.create_task(self._save_periodically(attempt, plan))

    async def save(self, attempt: Attempt) -> str:
        """Saves all changes. Returns a sentence about them for the user. Raises TurnoutError."""
        self._unwatch(attempt)
        plan = None
        try:
            plan = self._plans.read(attempt)
            saved = await self._save(attempt, plan, final=True) if plan else Transferred()
        except TurnoutError as error:
            raise TransferFailed(error.message + await self._not_saved(attempt, plan)) from error
        if plan and plan.key:
            await pools.copies.run(pools.OWN, remove_trees, [self._paths.copies(attempt)])
        return _describe(plan, saved) if plan else ""

    def forget(self, attempt: Attempt, keep: bool) -> None:
        if str(attempt) not in self._on_disk:
            return
        self._on_disk.discard(str(attempt))
        self._unwatch(attempt)
        self._plans.remove(attempt)
        self._log_exports.pop(attempt, None)
        keep = keep or attempt in self._unsaved
        self._unsaved.discard(attempt)
        directories = (self._paths.copies(attempt), self._paths.exported(attempt))
        existing = [path for path in directories if path.exists()]
        if not keep and existing:
            pools.copies.post(pools.OWN, remove_trees, existing)

    async def close(self) -> None:
        for task in self._periodic_saves.values():
            task.cancel()
        await self._stagers.close()

    # Before the start.

    async def _fetch_all(self, launch: Launch, copied: Mapping[int, Copied | Linked]) -> None:
        attempt, project = launch.attempt, launch.project
        items: list[Item] = []
        for number, resolved in copied.items():
            mount = launch.spec.mounts[number]
            if not mount.fetch:
                continue
            match resolved:
                case Linked(path):
                    _link(path, mount.source, self._directories.path(attempt, number))
                case Copied(EmbeddedPath() as path):
                    copy = self._bucket_copy(attempt, number, path, mount.source)
                    account = self._accounts.of(project)
                    await pools.copies.run(project, copy.fetch, account, not mount.required)
                case Copied(RemotePath() as path):
                    items.append(self._fetch_item(attempt, number, path, mount))
        if items:
            await self._stagers.of(self._directories.account(attempt, project)).fetch(items)

    def _fetch_item(self, attempt: Attempt, number: int, path: RemotePath, mount: Mount) -> Item:
        return _item(path) | {
            "to": self._directories.path(attempt, number),
            "state": self._directories.state_file(attempt, number),
            # A job creates what is missing in a writable mount, as it does in an embedded bucket.
            "optional": not mount.required,
        }

    def _bucket_copy(self, attempt: Attempt, number: int, path: EmbeddedPath, source: str) -> BucketCopy:
        directory, state = self._directories.path(attempt, number), self._plans.state_file(attempt, number)
        return BucketCopy(path, source, directory, state)

    # While the job runs, and at its end.

    async def _save_periodically(self, attempt: Attempt, plan: StagingPlan) -> None:
        while True:
            await asyncio.sleep(plan.period)
            try:
                await self._save(attempt, plan, final=False)
            except (TurnoutError, OSError) as error:
                # The next try may succeed, and an error of the last one is reported.
                _log.warning("cannot save the results of %s now: %s", attempt, error)

    async def _save(self, attempt: Attempt, plan: StagingPlan, *, final: bool) -> Transferred:
        mounts = [mount for mount in plan.mounts if final or mount.period > 0]
        embedded = await pools.copies.run(plan.project, self._save_embedded, attempt, plan, mounts, final)
        items = self._upload_items(attempt, plan, mounts)
        if plan.logs and (final or plan.logs.period > 0):
            target = self._storage.locate(plan.logs.to, plan.project)
            pool = pools.mounts if isinstance(target, HostPath) else pools.copies
            items += await pool.run(
                plan.project, self._export_logs, attempt, plan.project, target, plan.logs, final
            )
        stager = self._stagers.of(self._directories.account(attempt, plan.project))
        remote = await stager.upload(items, final=final) if items else Transferred()
        return embedded.plus(remote)

    def _save_embedded(
        self, attempt: Attempt, plan: StagingPlan, mounts: list[MountToSave], final: bool
    ) -> Transferred:
        total = Transferred()
        mounts = [mount for mount in mounts if mount.embedded and self._has_copy(attempt, mount)]
        if not mounts:
            return total
        key = self._ring.data_key(Header.of(plan.key, plan.wrapped_key)) if plan.key else None
        # The thread of a save that was cancelled may still be running.
        with self._copying:
            for mount in mounts:
                path = self._embedded(plan.project, mount.source)
                copy = self._bucket_copy(attempt, mount.number, path, mount.source)
                total = total.plus(copy.save(key, final=final))
        return total

    def _upload_items(self, attempt: Attempt, plan: StagingPlan, mounts: list[MountToSave]) -> list[Item]:
        return [
            _item(self._remote(plan.project, mount.source))
            | {
                "from": self._directories.path(attempt, mount.number),
                "state": self._directories.state_file(attempt, mount.number),
            }
            for mount in mounts
            if not mount.embedded and self._has_copy(attempt, mount)
        ]

    def _has_copy(self, attempt: Attempt, mount: MountToSave) -> bool:
        """False if the service was killed before the download began."""
        return os.path.exists(self._directories.path(attempt, mount.number))

    def _remote(self, project: str, source: str) -> RemotePath:
        path = self._storage.locate(source, project)
        if not isinstance(path, RemotePath):
            raise TransferFailed(f"{source!r} is not in a remote store any more: the settings have changed")
        return path

    def _embedded(self, project: str, source: str) -> EmbeddedPath:
        path = self._storage.locate(source, project)
        if not isinstance(path, EmbeddedPath):
            raise TransferFailed(
                f"{source!r} is not in an embedded bucket any more: the settings have changed"
            )
        return path

    def _export_logs(
        self, attempt: Attempt, project: str, target: Location, logs: LogsToSave, final: bool
    ) -> list[Item]:
        """Writes the logs. Returns what the stager has to upload. Raises TurnoutError or OSError."""
        exports = self._log_exports.get(attempt)
        if exports is None:
            names = logs.names.items()
            exports = [
                ReplicaLogExport(self._paths.replica(attempt, replica), name) for replica, name in names
            ]
            self._log_exports[attempt] = exports
        account = self._directories.account(attempt, project)
        if isinstance(target, Mounted):
            raise Unsupported(f"{logs.to!r}: logs can be written to a bucket or to file://")
        if not isinstance(target, RemotePath):
            bound = target.bind(read_only=False)
            directory = open_source((str(bound.root), bound.parts))
        else:
            directory = self._directories.make_exported(attempt, account)
        owner = (account.uid, os.fstat(directory).st_gid) if account.other else None
        try:
            for export in exports:
                export.write(lambda name: open_log_file(directory, name, owner), final=final)
        finally:
            os.close(directory)
        if not isinstance(target, RemotePath):
            return []
        self._directories.make(attempt, project)
        state = self._directories.state_file(attempt, "logs")
        return [_item(target) | {"from": str(self._paths.exported(attempt)), "state": state, "growing": True}]

    async def _not_saved(self, attempt: Attempt, plan: StagingPlan | None) -> str:
        """What happened to the job's files, for the user. Without a plan, its key is unavailable."""
        copies = self._paths.copies(attempt)
        if plan is None or plan.key:
            await pools.copies.run(pools.OWN, remove_trees, [copies])
            return "; its files were removed, because nothing of an encrypted job stays readable"
        self._unsaved.add(attempt)
        return f"; its files stay in {copies} as long as the job's logs" if plan.mounts else ""

    def _unwatch(self, attempt: Attempt) -> None:
        task = self._periodic_saves.pop(attempt, None)
        if task:
            task.cancel()


def _describe(plan: StagingPlan, saved: Transferred) -> str:
    """What was saved, and what was not."""
    parts: list[str] = []
    if saved.files:
        targets = ", ".join(mount.source for mount in plan.mounts) or (plan.logs.to if plan.logs else "")
        files = "1 file" if saved.files == 1 else f"{saved.files} files"
        parts.append(f"{files} ({saved.bytes} bytes) went to {targets}")
    return "; ".join([*parts, *saved.warnings])


def _link(path: EmbeddedPath, source: str, directory: str) -> None:
    """Makes a hard link to an object of an embedded bucket."""
    try:
        file = path.open_object()
    except (NotFound, Invalid):
        raise TransferFailed(f"{source!r} does not exist any more") from None
    here = os.open(directory, DIRECTORY)
    try:
        with contextlib.suppress(FileExistsError):
            # Only with a directory's descriptor does os.link follow the symbolic link in /proc.
            os.link(f"/proc/self/fd/{file}", path.name, dst_dir_fd=here, follow_symlinks=True)
    finally:
        os.close(here)
        os.close(file)


def _item(path: RemotePath) -> dict[str, Any]:
    """How the stager reaches it."""
    return {"backing": msgspec.to_builtins(path.settings), "prefix": path.prefix, "url": path.url}
