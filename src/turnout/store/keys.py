"""The keys of projects. Secrets are stored unhashed, because checking a signature needs the secret itself."""

from typing import NamedTuple

from turnout.errors import AlreadyExists, NotFound
from turnout.store.driver import Driver, Step
from turnout.store.rows import Row, storable
from turnout.store.shapes import RowShape
from turnout.store.statements import KEY, Statements, names
from turnout.store.unreadable import UnreadableRows
from turnout.store.write_queue import WriteQueue


class StoredKey(NamedTuple):
    id: str
    secret: str
    project: str
    label: str
    created: int


_KEY = RowShape(id=(str,), secret=(str,), project=(str,), label=(str,), created=(int,))


class StoredKeys:
    """Changes are durable when they return."""

    def __init__(
        self, driver: Driver, sql: Statements, queue: WriteQueue, unreadable: UnreadableRows
    ) -> None:
        self._driver = driver
        self._sql = sql
        self._queue = queue
        self._unreadable = unreadable

    async def all(self) -> list[StoredKey]:
        """Oldest first."""
        sql = f"SELECT {names(KEY)} FROM keys ORDER BY created, id"
        return self._unreadable.read_rows(await self._driver.read(sql), _key_of, "key")

    async def add(self, key: StoredKey) -> None:
        """Raises AlreadyExists."""
        self._queue.check_not_removed()

        async def change() -> list[Step]:
            if await self._exists(key.id):
                raise AlreadyExists(f"there is already a key {key.id}", field="id")
            return [Step(self._sql.insert_key, [key])]

        await self._queue.change(change)

    async def remove(self, key_id: str) -> None:
        """Raises NotFound."""

        async def change() -> list[Step]:
            if not await self._exists(key_id):
                raise NotFound(f"there is no key {key_id}")
            return [Step(self._sql.delete_key, [(key_id,)], changes=True)]

        await self._queue.change(change)

    async def _exists(self, key_id: str) -> bool:
        return storable(key_id) and bool((await self._driver.read_each(self._sql.key, [(key_id,)]))[0])


def _key_of(row: Row) -> StoredKey:
    _KEY.check(row)
    return StoredKey(*row)
