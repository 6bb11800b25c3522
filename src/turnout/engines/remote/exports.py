"""Writes the logs of attempts to the bucket or directory that their jobs ask for (`Spec.logs`)."""

import asyncio
import logging
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

from turnout import pools
from turnout.engines.log_export import ReplicaLogExport, open_log_file
from turnout.errors import TurnoutError, Unsupported
from turnout.job import Attempt, Launch, to_uuid
from turnout.paths import Paths
from turnout.storage import HostPath, Mounted, Storage
from turnout.storage.objects import Objects

_log = logging.getLogger(__name__)

_PIECE = 1 << 20
_LARGE = 64 << 20
"""A larger log is written to a bucket at the end only, because it is uploaded whole each time."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class LogExports:
    def __init__(self, storage: Storage, paths: Paths) -> None:
        self._storage = storage
        self._objects = Objects(storage)
        self._paths = paths
        self._exports: dict[Attempt, list[ReplicaLogExport]] = {}
        self._uploaded: dict[tuple[Attempt, str], int] = {}
        self._periodic: dict[Attempt, asyncio.Task[None]] = {}

    def begin(self, launch: Launch) -> None:
        """Exports periodically until `finish`, if the job asks for it. May be called again."""
        if launch.spec.logs and launch.spec.logs.period > 0 and launch.attempt not in self._periodic:
            task = asyncio.get_running_loop().create_task(self._periodically(launch))
            self._periodic[launch.attempt] = task

    async def finish(self, launch: Launch) -> str:
        """The last export. Returns what went wrong."""
        self._stop(launch.attempt)
        if launch.spec.logs is None:
            return ""
        try:
            await self._export(launch, final=True)
        except (TurnoutError, OSError) as error:
            return f"its logs cannot be written to {launch.spec.logs.to}: {error}"
        return ""

    def forget(self, attempt: Attempt) -> None:
        self._stop(attempt)
        self._exports.pop(attempt, None)
        for key in [key for key in self._uploaded if key[0] == attempt]:
            del self._uploaded[key]
        pools.disk.post(pools.OWN, shutil.rmtree, self._paths.exported(attempt), ignore_errors=True)

    def close(self) -> None:
        for attempt in list(self._periodic):
            self._stop(attempt)

    def _stop(self, attempt: Attempt) -> None:
        task = self._periodic.pop(attempt, None)
        if task:
            task.cancel()

    async def _periodically(self, launch: Launch) -> None:
        assert launch.spec.logs is not None
        while True:
            await asyncio.sleep(launch.spec.logs.period)
            try:
                await self._export(launch, final=False)
            except (TurnoutError, OSError) as error:
                # The next try may succeed, and an error of the last one is reported.
                _log.warning("cannot export the logs of %s now: %s", launch.attempt, error)

    async def _export(self, launch: Launch, *, final: bool) -> None:
        logs = launch.spec.logs
        assert logs is not None
        target = self._storage.locate(logs.to, launch.project)
        if isinstance(target, Mounted):
            raise Unsupported(f"{logs.to!r}: logs can be written to a bucket or to file://")
        if isinstance(target, HostPath):
            bound = await target.bind_in_time(launch.project, False)
            directory = bound.root.joinpath(*bound.parts)
        else:
            directory = self._paths.exported(launch.attempt)
        exports = self._of(launch)
        sizes = await pools.disk.run(launch.project, _write_all, exports, directory, final)
        if isinstance(target, HostPath):
            return
        for name, size in sizes.items():
            url = f"{logs.to.rstrip('/')}/{name}"
            if self._uploaded.get((launch.attempt, url)) != size and (final or size <= _LARGE):
                await self._objects.write(url, launch.project, _read(directory / name, launch.project))
                self._uploaded[launch.attempt, url] = size

    def _of(self, launch: Launch) -> list[ReplicaLogExport]:
        logs, attempt = launch.spec.logs, launch.attempt
        assert logs is not None
        if attempt not in self._exports:
            job = to_uuid(attempt.job)
            self._exports[attempt] = [
                ReplicaLogExport(self._paths.replica(attempt, name), logs.name.format(id=job, replica=name))
                for name, _ in launch.replicas()
            ]
        return self._exports[attempt]


def _write_all(exports: list[ReplicaLogExport], directory: Path, final: bool) -> dict[str, int]:
    """Returns the size of each file that there is."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    here = os.open(directory, _DIRECTORY)
    try:
        for export in exports:
            export.write(lambda name: open_log_file(here, name, None), final=final)
        names = {export.name for export in exports} & set(os.listdir(here))
        return {name: os.stat(name, dir_fd=here).st_size for name in sorted(names)}
    finally:
        os.close(here)


async def _read(file: Path, project: str) -> AsyncIterator[bytes]:
    with file.open("rb") as opened:
        while data := await pools.disk.run(project, opened.read, _PIECE):
            yield data
