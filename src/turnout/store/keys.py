"""The key pairs of projects. Secrets are kept as they are: checking a signature takes the secret itself."""

from typing import NamedTuple

from turnout.errors import AlreadyExists, NotFound
from turnout.store.driver import Driver, Step
from turnout.store.rows import storable
from turnout.store.statements import KEY, Statements, names
from turnout.store.writing import Writing


class StoredKey(NamedTuple):
    id: str
    secret: str
    project: str
    label: str
    created: int


class StoredKeys:
    """Changes are durable when they return."""

    def __init__(self, driver: Driver, sql: Statements, writing: Writing) -> None:
        self._driver = driver
        self._sql = sql
        self._writing = writing

    async def all(self) -> list[StoredKey]:
        """Oldest first."""
        sql = f"SELECT {names(KEY)} FROM keys ORDER BY created, id"
        return [StoredKey(*row) for row in await self._driver.read(sql)]

    async def add(self, key: StoredKey) -> None:
        """Raises AlreadyExists."""

        async def change() -> list[Step]:
            if await self._there(key.id):
                raise AlreadyExists(f"there is already a key {key.id}", field="id")
            return [Step(self._sql.insert_key, [key])]

        await self._writing.change(change)

    async def remove(self, key_id: str) -> None:
        """Raises NotFound."""

        async def change() -> list[Step]:
            if not await self._there(key_id):
                raise NotFound(f"there is no key {key_id}")
            return [Step(self._sql.delete_key, [(key_id,)], changes=True)]

        await self._writing.change(change)

    async def _there(self, key_id: str) -> bool:
        return storable(key_id) and bool((await self._driver.each(self._sql.key, [(key_id,)]))[0])
