"""Mounts that cannot be bound, because they lie in a real object store: copied here before the start, brought back
while the job runs and at its end.

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

from turnout.engines.local.mover import Item, Mover, NotMoved
from turnout.errors import TurnoutError
from turnout.job import Attempt, Launch, Mount
from turnout.paths import Paths
from turnout.runner.plan import Bind

_log = logging.getLogger(__name__)


class Transfers(Protocol):
    """What is needed of the storage room: how a source is reached, or None if it can be bound."""

    def transfer(self, source: str, project: str) -> dict[str, Any] | None: ...


class _Back(msgspec.Struct):
    """One that is brought back."""

    number: int
    source: str
    period: float


class _Plan(msgspec.Struct):
    project: str
    back: list[_Back]


class Staging:
    def __init__(self, paths: Paths, storage: Transfers, mover: Mover) -> None:
        self._paths = paths
        self._storage = storage
        self._mover = mover
        self._watching: dict[Attempt, asyncio.Task[None]] = {}

    def wanted(self, launch: Launch) -> list[int]:
        """The numbers of the mounts that have to be copied. Raises TurnoutError."""
        return [
            number
            for number, mount in enumerate(launch.spec.mounts)
            if self._storage.transfer(mount.source, launch.project) is not None
        ]

    async def fetch(self, launch: Launch, wanted: list[int]) -> dict[int, Bind]:
        """Raises TurnoutError."""
        mounts = launch.spec.mounts
        here = self._paths.copies(launch.attempt)
        back = [_Back(n, mounts[n].source, mounts[n].period) for n in wanted if not mounts[n].read_only]
        if back:
            await asyncio.to_thread(self._write, launch.attempt, _Plan(launch.project, back))
        items = [self._in(launch, number, mounts[number]) for number in wanted]
        await self._mover.fetch(items)
        return {n: Bind(str(here), (str(n),), mounts[n].target, mounts[n].read_only) for n in wanted}

    def watch(self, attempt: Attempt) -> None:
        """Bring back what changes while it runs."""
        plan = self._read(attempt)
        if plan is None or attempt in self._watching:
            return
        periods = [back.period for back in plan.back if back.period > 0]
        if periods:
            self._watching[attempt] = asyncio.create_task(self._repeat(attempt, plan, min(periods)))

    async def save(self, attempt: Attempt) -> str:
        """All that has changed; what was moved, for people. Raises TurnoutError."""
        self._unwatch(attempt)
        plan = self._read(attempt)
        if plan is None:
            return ""
        moved = await self._mover.bring_back(self._out(attempt, plan, plan.back), final=True)
        if not moved.files:
            return ""
        places = ", ".join(back.source for back in plan.back)
        files = "1 file" if moved.files == 1 else f"{moved.files} files"
        return f"{files} ({moved.bytes} bytes) went to {places}"

    def forget(self, attempt: Attempt, keep: bool) -> None:
        self._unwatch(attempt)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._file(attempt))
        copies = self._paths.copies(attempt)
        if not keep and copies.exists():
            asyncio.get_running_loop().run_in_executor(
                None, lambda: shutil.rmtree(copies, ignore_errors=True)
            )

    def close(self) -> None:
        for task in self._watching.values():
            task.cancel()
        self._mover.close()

    def _in(self, launch: Launch, number: int, mount: Mount) -> Item:
        return self._reach(launch.project, mount.source) | {
            "to": self._copy(launch.attempt, number),
            "state": self._state(launch.attempt, number),
            "fetch": mount.fetch,
        }

    def _out(self, attempt: Attempt, plan: _Plan, backs: list[_Back]) -> list[Item]:
        return [
            self._reach(plan.project, back.source)
            | {"from": self._copy(attempt, back.number), "state": self._state(attempt, back.number)}
            for back in backs
        ]

    def _reach(self, project: str, source: str) -> dict[str, Any]:
        found = self._storage.transfer(source, project)
        if found is None:
            raise NotMoved(f"{source!r} is not in an object store any more: the settings have changed")
        return found

    async def _repeat(self, attempt: Attempt, plan: _Plan, period: float) -> None:
        backs = [back for back in plan.back if back.period > 0]
        while True:
            await asyncio.sleep(period)
            try:
                await self._mover.bring_back(self._out(attempt, plan, backs), final=False)
            except TurnoutError as error:
                # The next time may go well, and the last time tells.
                _log.warning("results of %s: %s", attempt, error.message)

    def _unwatch(self, attempt: Attempt) -> None:
        task = self._watching.pop(attempt, None)
        if task:
            task.cancel()

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
