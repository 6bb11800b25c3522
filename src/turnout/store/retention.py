"""Deletes rows whose retention time is over, in small steps. Each step is a short transaction.

A job's own row is deleted last, so that the next sweep finds and completes what a crash interrupted.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import NamedTuple

from turnout.store.codes import FIRST_ENDED
from turnout.store.driver import Driver, Step
from turnout.store.statements import DELETED, MEASUREMENT, SAMPLE, names
from turnout.store.write_queue import WriteQueue

STEP_SECONDS = 0.005
"""The time that one transaction should take, because other writers wait for it."""
STEP_ROWS = (100, 2000)
"""The bounds for the number of rows of a transaction, which is adapted to that time. Fewer rows would not be quicker:
most of the time would be overhead of the transaction, on PostgreSQL its round trips.
"""
WINDOW = 1000
"""The number of jobs in one read."""


class Amount(NamedTuple):
    rows: int = 0
    bytes: int = 0
    """An estimate of the size of the rows, without indexes."""

    def __add__(self, other: object) -> "Amount":
        if not isinstance(other, Amount):
            return NotImplemented
        return Amount(self.rows + other.rows, self.bytes + other.bytes)


class EndedJob(NamedTuple):
    """What retention needs of a job that has ended."""

    id: int
    ended: int
    deleted: int | None


class _Table(NamedTuple):
    name: str
    key: tuple[str, ...]
    bulky: tuple[str, ...] = ()
    """The columns that can be long."""
    condition: str = "1 = 1"


def _of_past_attempts(table: str) -> str:
    return f"attempt < (SELECT attempt FROM jobs WHERE jobs.id = {table}.job)"


_TABLES: dict[str, tuple[_Table, ...]] = {
    "events": (_Table("events", ("number",), ("message",)),),
    "samples": (_Table("samples", ("job", "role", "index", "attempt", "at")),),
    "measurements": (_Table("measurements", MEASUREMENT[:3], ("told",)),),
    "attempts": (
        _Table("past", ("job", "attempt"), ("message",)),
        _Table("submissions", ("job", "attempt"), condition=_of_past_attempts("submissions")),
        _Table("replicas", SAMPLE[:4], ("message",), _of_past_attempts("replicas")),
    ),
}
"""Rows that can be deleted before their job, by the name of the setting."""

_ALL = (
    *_TABLES["samples"],
    *_TABLES["measurements"],
    *_TABLES["events"],
    _Table("past", ("job", "attempt"), ("message",)),
    _Table("replicas", SAMPLE[:4], ("message",)),
    _Table("submissions", ("job", "attempt")),
    _Table("labels", ("job", "key"), ("key", "value")),
    _Table("trials", ("job", "number"), ("told",)),
    _Table("documents", ("job",), ("document", "spec")),
)
_JOBS = _Table("jobs", ("id",), ("name", "message"))
_ROW_BYTES = 60
"""The estimated size of a row without its long columns."""

# The jobs of a search's trials stay as long as the search: they are looked up by their ids.
_OF_A_SEARCH = (
    "EXISTS (SELECT 1 FROM trials CROSS JOIN jobs AS search WHERE trials.child = jobs.id"
    f" AND search.id = trials.job AND (search.deleted IS NULL OR search.state < {FIRST_ENDED}))"
)


class StoredRetention:
    def __init__(self, driver: Driver, queue: WriteQueue) -> None:
        self._driver = driver
        self._queue = queue
        self._step = STEP_ROWS[0]

    async def deleted(self, before: int, after: tuple[int, int] = (0, 0)) -> list[EndedJob]:
        """At most WINDOW jobs that ended and were deleted before that time, in the order of deletion.

        `after`: deletion time and id of the last job of the previous call. The newest job is never returned: its row
        keeps its id from being used again.
        """
        mark = self._driver.flavour.mark
        sql = (
            f"SELECT id, ended, deleted FROM jobs WHERE {DELETED} AND deleted < {mark}"
            f" AND (deleted, id) > ({mark}, {mark}) AND state >= {FIRST_ENDED}"
            f" AND (ended IS NULL OR ended < {mark}) AND id < (SELECT max(id) FROM jobs)"
            f" AND NOT {_OF_A_SEARCH} ORDER BY deleted, id LIMIT {WINDOW}"
        )
        found = await self._driver.read(sql, (before, *after, before))
        return [EndedJob(*row) for row in found]

    async def ended(self, before: int, after: int = 0) -> tuple[list[EndedJob], int | None]:
        """Of the next WINDOW jobs by id, those that ended before that time; and the next `after`, None at the end.

        Ids contain the time of creation, so jobs that were created later need not be read.
        """
        mark = self._driver.flavour.mark
        sql = (
            f"SELECT id, ended, deleted, state FROM jobs WHERE id > {mark} AND id < {mark}"
            f" ORDER BY id LIMIT {WINDOW}"
        )
        found = await self._driver.read(sql, (after, min(before // 1_000_000 << 20, (1 << 63) - 1)))
        ended = [
            EndedJob(*row[:3])
            for row in found
            # It is unknown when the job of a damaged row ended, so the row stays.
            if isinstance(row[1], int)
            and isinstance(row[3], int)
            and row[3] >= FIRST_ENDED
            and row[1] < before
        ]
        return ended, found[-1][0] if len(found) == WINDOW else None

    async def trials_of_searches(self, ids: Sequence[int]) -> set[int]:
        """Which of these jobs are trials of an existing search."""
        if not ids:
            return set()
        found = await self._driver.read(
            f"SELECT id FROM jobs WHERE id IN ({_listed(ids)}) AND {_OF_A_SEARCH}"
        )
        return {row[0] for row in found}

    async def amount(self, ids: Sequence[int], kind: str = "") -> Amount:
        """The amount that `remove` would delete."""
        found = Amount()
        for table in _TABLES[kind] if kind else (*_ALL, _JOBS):
            found += await self._amount(table, ids)
        return found

    async def remove(self, ids: Sequence[int], kind: str = "") -> int:
        """Deletes all rows of these jobs, or those of one kind. Returns the number of rows. Raises StoreError."""
        removed = 0
        rest = list(ids)
        while rest:
            # A job has about ten rows. A job with more rows than a step allows is deleted alone.
            chunk, rest = rest[: max(1, self._step // 10)], rest[max(1, self._step // 10) :]
            removed += await self._remove(chunk, _TABLES[kind] if kind else (*_ALL, _JOBS))
        return removed

    async def shrink(self) -> int:
        """See Driver.shrink."""
        return await self._queue.shrink()

    async def _remove(self, ids: list[int], tables: Sequence[_Table]) -> int:
        """Uses one transaction for few rows, and several for many."""
        most = self._step
        removed = 0
        counts = await self._counts(tables, ids, most)
        for table in tables:
            while counts[table] == most:
                await self._delete(ids, [table], most, most)
                removed += most
                counts |= await self._counts([table], ids, most)
        nonempty = [table for table in tables if counts[table]]
        rows = sum(counts.values())
        if rows:
            await self._delete(ids, nonempty, most, rows)
        return removed + rows

    async def _delete(self, ids: list[int], tables: Sequence[_Table], most: int, rows: int) -> None:
        began = 0.0

        async def change() -> list[Step]:
            nonlocal began
            began = time.perf_counter()
            return [Step(self._delete_sql(table, ids, most), [()], bulk=True) for table in tables]

        await self._queue.change(change)
        seconds = time.perf_counter() - began
        fitting = int(rows * STEP_SECONDS / max(seconds, 1e-6))
        self._step = min(max(fitting, self._step // 2, STEP_ROWS[0]), self._step * 2, STEP_ROWS[1])
        await asyncio.sleep(seconds)  # leaves other writers at least half of the time

    def _delete_sql(self, table: _Table, ids: Sequence[int], most: int) -> str:
        key, where = names(table.key), _where(table, ids)
        return self._driver.flavour.delete_some.format(table=table.name, key=key, where=where, most=most)

    async def _counts(self, tables: Sequence[_Table], ids: Sequence[int], most: int) -> dict[_Table, int]:
        """The number of rows in each table, counted up to `most`."""
        inner = (f"SELECT 1 FROM {table.name} WHERE {_where(table, ids)} LIMIT {most}" for table in tables)
        counts = ", ".join(f"(SELECT count(*) FROM ({query}) AS counted)" for query in inner)
        return dict(zip(tables, (await self._driver.read(f"SELECT {counts}"))[0], strict=True))

    async def _amount(self, table: _Table, ids: Sequence[int]) -> Amount:
        long = " + ".join(f"length({column})" for column in table.bulky) or "0"
        sql = f"SELECT count(*), coalesce(sum({long}), 0) FROM {table.name} WHERE {_where(table, ids)}"
        rows, long_bytes = (await self._driver.read(sql))[0]
        return Amount(rows, rows * _ROW_BYTES + int(long_bytes))


def _where(table: _Table, ids: Sequence[int]) -> str:
    return f"{'id' if table.name == 'jobs' else 'job'} IN ({_listed(ids)}) AND {table.condition}"


def _listed(ids: Sequence[int]) -> str:
    """The ids as literals, because a statement has a maximum number of parameters."""
    return ", ".join(str(int(job_id)) for job_id in ids)
