"""The audit trail. Lines about jobs are written in the commit of the change: see `Batch.audit`."""

from typing import NamedTuple

from turnout.job import AuditLine
from turnout.store import rows
from turnout.store.driver import Driver, Step
from turnout.store.statements import AUDIT, Statements, names
from turnout.store.unreadable import UnreadableRows
from turnout.store.write_queue import WriteQueue

_WINDOW = 2000
"""Lines that one transaction deletes."""


class AuditFilter(NamedTuple):
    """A field that is empty or None matches every line."""

    project: str | None = None
    who: str = ""
    job: int = 0
    since: int = 0
    before: int = 0
    """Only lines with a smaller number; 0: all."""


class StoredAudit:
    def __init__(
        self, driver: Driver, sql: Statements, queue: WriteQueue, unreadable: UnreadableRows
    ) -> None:
        self._driver = driver
        self._sql = sql
        self._queue = queue
        self._unreadable = unreadable

    async def add(self, line: AuditLine) -> None:
        """Adds a line, which is on disk when this returns."""

        async def change() -> list[Step]:
            return [self.step([line])]

        await self._queue.change(change)

    def step(self, lines: list[AuditLine]) -> Step:
        return Step(self._sql.insert_audit, [rows.audit_row(line) for line in lines])

    async def find(self, wanted: AuditFilter, limit: int) -> list[AuditLine]:
        """The newest first."""
        mark = self._driver.flavour.mark
        conditions = {
            f"project = {mark}": wanted.project,
            f"who = {mark}": wanted.who or None,
            f"job = {mark} AND job > 0": wanted.job or None,
            f"at >= {mark}": wanted.since or None,
            f"number < {mark}": wanted.before or None,
        }
        given = {text: value for text, value in conditions.items() if value is not None}
        if not all(map(rows.storable, given.values())):
            return []
        where = " AND ".join(given) or "1 = 1"
        sql = f"SELECT {names(AUDIT)} FROM audit WHERE {where} ORDER BY number DESC LIMIT {mark}"
        found = await self._driver.read(sql, (*given.values(), limit))
        return self._unreadable.read_rows(found, rows.audit_line_of, "audit line", 1)

    async def expired(self, before: int) -> int:
        """The number of lines before that time."""
        sql = f"SELECT count(*) FROM audit WHERE at < {self._driver.flavour.mark}"
        return (await self._driver.read(sql, (before,)))[0][0]

    async def remove(self, before: int) -> int:
        """Deletes the oldest lines, if they are older than that. Returns how many; call it until that is 0.

        The newest line stays: its number must not be used again.
        """
        mark = self._driver.flavour.mark
        sql = f"SELECT number, at FROM audit ORDER BY number LIMIT {_WINDOW + 1}"
        oldest = await self._driver.read(sql)
        expired = [number for number, at in oldest[:-1] if at < before]
        if not expired:
            return 0

        async def change() -> list[Step]:
            delete = f"DELETE FROM audit WHERE number <= {mark} AND at < {mark}"
            return [Step(delete, [(expired[-1], before)], bulk=True)]

        await self._queue.change(change)
        return len(expired)
