"""Messages to webhooks that wait until they are delivered. They are added by the commit of a change."""

from typing import NamedTuple

from turnout.job import Delivery
from turnout.store import rows
from turnout.store.driver import Driver, Step
from turnout.store.statements import DELIVERY, UNDELIVERED, Statements, names
from turnout.store.unreadable import UnreadableRows
from turnout.store.write_queue import WriteQueue

_WINDOW = 1000


class DeliveryCounts(NamedTuple):
    waiting: int
    failing: int
    """Of these, how many failed at least once."""
    given_up: int
    oldest: int | None
    """When the oldest that waits was made."""


class StoredDeliveries:
    def __init__(
        self, driver: Driver, sql: Statements, queue: WriteQueue, unreadable: UnreadableRows
    ) -> None:
        self._driver = driver
        self._insert = sql.insert_delivery
        self._queue = queue
        self._unreadable = unreadable
        self._mark = driver.flavour.mark

    def step(self, deliveries: list[Delivery]) -> Step:
        return Step(self._insert, [rows.delivery_row(one) for one in deliveries])

    async def due(self, hook: str, now: int, limit: int) -> list[Delivery]:
        """Messages that may be sent now, the oldest first."""
        where = f"{UNDELIVERED} AND hook = {self._mark} AND next_at <= {self._mark}"
        sql = f"SELECT {names(DELIVERY)} FROM deliveries WHERE {where} ORDER BY next_at, number LIMIT {limit}"
        return self._read(await self._driver.read(sql, (hook, now)))

    async def next_at(self, hook: str) -> int | None:
        sql = f"SELECT min(next_at) FROM deliveries WHERE {UNDELIVERED} AND hook = {self._mark}"
        return (await self._driver.read(sql, (hook,)))[0][0]

    async def delivered(self, numbers: list[int]) -> None:
        await self._change(f"DELETE FROM deliveries WHERE number = {self._mark}", [(one,) for one in numbers])

    async def failed(self, number: int, next_at: int, error: str) -> None:
        sql = (
            f"UPDATE deliveries SET attempts = attempts + 1, next_at = {self._mark}, error = {self._mark}"
            f" WHERE number = {self._mark}"
        )
        await self._change(sql, [(next_at, error, number)])

    async def give_up(self, hook: str, before: int, now: int) -> None:
        """Gives up the messages from before that time."""
        sql = (
            f"UPDATE deliveries SET given_up = {self._mark} WHERE {UNDELIVERED} AND hook = {self._mark}"
            f" AND at < {self._mark}"
        )
        await self._change(sql, [(now, hook, before)])

    async def hooks(self) -> list[str]:
        """The webhooks that have waiting messages."""
        return [
            row[0]
            for row in await self._driver.read(f"SELECT DISTINCT hook FROM deliveries WHERE {UNDELIVERED}")
        ]

    async def counts(self, hook: str) -> DeliveryCounts:
        waits = f"CASE WHEN {UNDELIVERED} THEN"
        sql = (
            f"SELECT coalesce(sum({waits} 1 ELSE 0 END), 0),"
            f" coalesce(sum({waits} (CASE WHEN attempts > 0 THEN 1 ELSE 0 END) ELSE 0 END), 0),"
            f" coalesce(sum({waits} 0 ELSE 1 END), 0), min({waits} at END)"
            f" FROM deliveries WHERE hook = {self._mark}"
        )
        waiting, failing, given_up, oldest = (await self._driver.read(sql, (hook,)))[0]
        return DeliveryCounts(int(waiting), int(failing), int(given_up), oldest)

    async def failures(self, hook: str, limit: int) -> list[Delivery]:
        """Messages that failed at least once or were given up, the newest first."""
        where = f"hook = {self._mark} AND (attempts > 0 OR given_up IS NOT NULL)"
        sql = f"SELECT {names(DELIVERY)} FROM deliveries WHERE {where} ORDER BY number DESC LIMIT {limit}"
        return self._read(await self._driver.read(sql, (hook,)))

    async def expired(self, before: int) -> int:
        sql = f"SELECT count(*) FROM deliveries WHERE given_up < {self._mark}"
        return (await self._driver.read(sql, (before,)))[0][0]

    async def remove(self, before: int) -> int:
        """Deletes some messages that were given up before that time. Call it until it returns 0, the number deleted."""
        sql = f"SELECT number FROM deliveries WHERE given_up < {self._mark} LIMIT {_WINDOW}"
        found = await self._driver.read(sql, (before,))
        await self.delivered([row[0] for row in found])
        return len(found)

    async def _change(self, sql: str, values: list[rows.Row]) -> None:
        async def change() -> list[Step]:
            return [Step(sql, values, bulk=len(values) > 1)] if values else []

        await self._queue.change(change)

    def _read(self, found: list[rows.Row]) -> list[Delivery]:
        return self._unreadable.read_rows(found, rows.delivery_of, "message to a webhook", 1)
