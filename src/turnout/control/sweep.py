"""Retention: deletes rows and files that are older than `[limits]` allows for their kind.

Deletes run in small steps so that other requests are not delayed. The next sweep completes what a crash interrupted.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from turnout import pools
from turnout.engines import Engine
from turnout.errors import Busy, NotFound, TurnoutError, WrongState
from turnout.limits import Limits
from turnout.store import Store
from turnout.store.retention import Amount, EndedJob

log = logging.getLogger(__name__)

BY = "retention"
"""Recorded as the deleter of a job that retention deletes."""
_HOUR, _DAY = 3600, 86_400
_AT_ONCE = 500
_DELETES_AT_ONCE = 20
_KINDS = {
    "events": "event_days",
    "samples": "sample_days",
    "measurements": "measurement_days",
    "attempts": "attempt_days",
}

Clear = Callable[[Any, bool], tuple[int, int]]
"""Called with a limit and `dry`. Returns the number of files and of bytes that it removes, or with `dry` would remove.

The limit is a time (seconds since 1970): files that have not changed since are removed. Or it is a size in bytes.
"""


class Files(NamedTuple):
    """A kind of file that is swept every hour."""

    what: str
    setting: str
    """Its name in `[limits]`: days to keep, or the size that `clear` leaves."""
    clear: Clear


class Rows(Protocol):
    """Rows that are swept by their age."""

    async def expired(self, before: int) -> int:
        """How many are older."""
        ...

    async def remove(self, before: int) -> int:
        """Deletes some of them. Call it until it returns 0, the number deleted."""
        ...


class Aged(NamedTuple):
    what: str
    setting: str
    """Its name in `[limits]`."""
    rows: Rows


class Swept(msgspec.Struct, frozen=True):
    """What was removed, or would be, of one kind."""

    what: str
    setting: str
    """Its name in `[limits]`; empty if it is not configurable."""
    count: int
    """The number of jobs or other things that `what` names."""
    rows: int = 0
    bytes: int = 0
    """An estimate; 0 if it would have to look at every file."""


class Sweeper:
    def __init__(
        self,
        store: Store,
        engines: Mapping[str, Engine],
        limits: Limits,
        delete: Callable[[int, str], Awaitable[object]],
        files: Sequence[Files] = (),
        aged: Sequence[Aged] = (),
    ) -> None:
        """`delete` deletes a job as its owner would."""
        self._store = store
        self._engines = engines
        self._limits = limits
        self._delete = delete
        self._files = files
        self._aged = (
            Aged("lines of the audit trail", "audit_days", store.audit),
            Aged("messages to webhooks", "delivery_days", store.deliveries),
            *aged,
        )
        self._lock = asyncio.Lock()

    async def keep(self) -> None:
        """Runs forever: a full sweep now and every day, plain files every hour."""
        hours = 0
        while True:
            try:
                async with self._lock:
                    async for swept in (
                        self._sweep_all(dry=False) if hours % 24 == 0 else self._sweep_files(dry=False)
                    ):
                        if swept.count:
                            log.info("swept: %s", swept)
            except TurnoutError as error:
                log.warning("the sweep failed: %s", error.message)
            except Exception:
                log.exception("the sweep failed")
            hours += 1
            await asyncio.sleep(_HOUR)

    async def run(self, *, dry: bool) -> AsyncIterator[Swept]:
        """Yields each kind as it is done; with `dry` it removes nothing. Raises Busy or StoreError."""
        if dry:
            async for swept in self._sweep_all(dry=True):
                yield swept
            return
        if self._lock.locked():
            raise Busy("another sweep is running: try again when it is done, or use --dry-run")
        async with self._lock:
            async for swept in self._sweep_all(dry=False):
                yield swept

    async def _sweep_all(self, *, dry: bool) -> AsyncIterator[Swept]:
        if self._limits.finished_days:
            yield await self._sweep_ended_jobs(dry=dry)
        if self._limits.deleted_days:
            yield await self._sweep_deleted_jobs(dry=dry)
        for kind, setting in _KINDS.items():
            if days := getattr(self._limits, setting):
                yield await self._sweep_rows(kind, setting, _before(days), dry=dry)
        for aged in self._aged:
            if days := getattr(self._limits, aged.setting):
                yield await _remove(aged, _before(days), dry=dry)
        for name, engine in self._engines.items():
            yield await self._sweep_attempts(name, engine, dry=dry)
        async for swept in self._sweep_files(dry=dry):
            yield swept
        if not dry:
            yield await self._shrink_database()

    async def _sweep_ended_jobs(self, *, dry: bool) -> Swept:
        count = 0
        async for window in self._ended_jobs(_before(self._limits.finished_days)):
            undeleted = [job.id for job in window if job.deleted is None]
            trials = await self._store.retention.trials_of_searches(undeleted)
            expired = [job_id for job_id in undeleted if job_id not in trials]
            count += len(expired)
            for first in range(0, 0 if dry else len(expired), _DELETES_AT_ONCE):
                began = time.perf_counter()
                batch = expired[first : first + _DELETES_AT_ONCE]
                await asyncio.gather(*(self._delete_job(job_id) for job_id in batch))
                await asyncio.sleep(time.perf_counter() - began)  # leaves others at least half of the time
        return Swept("jobs that ended long ago", "finished_days", count)

    async def _delete_job(self, job_id: int) -> None:
        try:
            await self._delete(job_id, BY)
        except (NotFound, WrongState):
            return  # deleted meanwhile

    async def _sweep_deleted_jobs(self, *, dry: bool) -> Swept:
        count, amount, after = 0, Amount(), (0, 0)
        before = _before(self._limits.deleted_days)
        while found := await self._store.retention.deleted(before, after):
            ids = [job.id for job in found]
            amount += await self._store.retention.amount(ids)
            if not dry:
                await self._store.retention.remove(ids)
            count += len(ids)
            after = (found[-1].deleted or 0, found[-1].id)
        return Swept("deleted jobs", "deleted_days", count, amount.rows, amount.bytes)

    async def _sweep_rows(self, kind: str, setting: str, before: int, *, dry: bool) -> Swept:
        amount = Amount()
        async for window in self._ended_jobs(before):
            # A sweep that is not dry has already removed these jobs.
            removed = await self._removed_before(window) if dry else set[int]()
            ids = [job.id for job in window if job.id not in removed]
            found = await self._store.retention.amount(ids, kind)
            if found.rows and not dry:
                await self._store.retention.remove(ids, kind)
            amount += found
        return Swept(f"{kind} of ended jobs", setting, amount.rows, amount.rows, amount.bytes)

    async def _removed_before(self, window: Sequence[EndedJob]) -> set[int]:
        """The jobs in the window that `_sweep_deleted_jobs` removes."""
        if not self._limits.deleted_days:
            return set()
        before = _before(self._limits.deleted_days)
        old = {job.id for job in window if (job.deleted or before) < before and job.ended < before}
        if not old:
            return old
        return (
            old - await self._store.retention.trials_of_searches(sorted(old)) - {await self._store.last_id()}
        )

    async def _ended_jobs(self, before: int) -> AsyncIterator[list[EndedJob]]:
        after: int | None = 0
        while after is not None:
            found, after = await self._store.retention.ended(before, after)
            if found:
                yield found

    async def _sweep_attempts(self, name: str, engine: Engine, *, dry: bool) -> Swept:
        """Removes the files of old attempts, including those of unknown and deleted jobs."""
        oldest = _before(self._limits.log_days) if self._limits.log_days else 0
        stored = await engine.attempts_on_disk()
        count = 0
        for first in range(0, len(stored), _AT_ONCE):
            gone = await self._store.finished_attempts(stored[first : first + _AT_ONCE], oldest)
            count += len(gone)
            if gone and not dry:
                await engine.remove(gone)
        return Swept(f"logs and files of attempts ({name})", "log_days", count)

    async def _sweep_files(self, *, dry: bool) -> AsyncIterator[Swept]:
        for what, setting, clear in self._files:
            limit = getattr(self._limits, setting)
            if setting.endswith("_days"):
                limit = time.time() - limit * _DAY if limit else 0.0
            count, size = await pools.copies.run(pools.OWN, clear, limit, dry)
            yield Swept(what, setting, count, bytes=size)

    async def _shrink_database(self) -> Swept:
        freed = 0
        while size := await self._store.retention.shrink():
            freed += size
            await asyncio.sleep(0)
        return Swept("space in the database", "", 0, bytes=freed)


def _before(days: float) -> int:
    return time.time_ns() - int(days * _DAY * 1e9)


async def _remove(aged: Aged, before: int, *, dry: bool) -> Swept:
    count = 0
    if dry:
        count = await aged.rows.expired(before)
    else:
        while removed := await aged.rows.remove(before):
            count += removed
            await asyncio.sleep(0)
    return Swept(aged.what, aged.setting, count, count)
