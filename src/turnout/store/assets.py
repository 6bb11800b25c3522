"""Documents that are not jobs. No change of a job affects them."""

from collections.abc import Callable
from typing import Literal

import msgspec

from turnout.errors import AlreadyExists, NotFound
from turnout.job import Asset
from turnout.store import rows
from turnout.store.driver import Driver, Step
from turnout.store.statements import ASSET, Statements, names
from turnout.store.unreadable import Unreadable, UnreadableRows
from turnout.store.where import fit_integer
from turnout.store.write_queue import WriteQueue

Order = Literal["created", "updated", "name"]
_WINDOW = 500
"""How many one transaction deletes."""


class StoredAssets:
    """Changes are durable when they return."""

    def __init__(
        self, driver: Driver, sql: Statements, queue: WriteQueue, unreadable: UnreadableRows
    ) -> None:
        self._driver = driver
        self._sql = sql
        self._queue = queue
        self._unreadable = unreadable

    async def create(self, asset: Asset) -> None:
        """Raises AlreadyExists."""
        self._queue.check_not_removed()

        async def change() -> list[Step]:
            await self._check_free(asset)
            if await self.get(asset.project, asset.kind, asset.id):
                raise AlreadyExists(f"another {asset.kind} has the id {asset.id}", field="id")
            return [Step(self._sql.insert_asset, [rows.asset_row(asset)])]

        await self._queue.change(change)

    async def update(self, asset: Asset) -> None:
        """Replaces everything but `created`. Raises NotFound or AlreadyExists."""

        async def change() -> list[Step]:
            await self._check_exists(asset.project, asset.kind, asset.id)
            await self._check_free(asset)
            return [Step(self._sql.update_asset, [rows.asset_change(asset)], changes=True)]

        await self._queue.change(change)

    async def change(
        self, project: str, kind: str, asset_id: str, now: int, change: Callable[[bytes], bytes]
    ) -> Asset:
        """Replaces the document by what `change` makes of it, with no other change in between. It may be called twice.

        Raises NotFound, and what `change` raises.
        """
        changed: list[Asset] = []

        async def steps() -> list[Step]:
            old = await self.get(project, kind, asset_id)
            if old is None:
                raise NotFound(f"there is no {kind} {asset_id}")
            # Changes that share a transaction read before any of them is written: the second one of the same asset
            # finds another `updated`, fails, and is made again.
            new = msgspec.structs.replace(
                old, updated=max(now, old.updated + 1), document=change(old.document)
            )
            changed[:] = [new]
            return [Step(self._sql.change_asset, [(*rows.asset_change(new), old.updated)], changes=True)]

        await self._queue.change(steps)
        return changed[0]

    async def delete(self, project: str, kind: str, asset_id: str) -> None:
        """Raises NotFound."""

        async def change() -> list[Step]:
            await self._check_exists(project, kind, asset_id)
            return [Step(self._sql.delete_asset, [(project, kind, asset_id)], changes=True)]

        await self._queue.change(change)

    def of_kind(self, kind: str) -> "AssetsOfKind":
        """All of this kind, to be deleted by age."""
        return AssetsOfKind(self._driver, self._queue, self._sql.delete_asset, kind)

    async def get(self, project: str, kind: str, asset_id: str) -> Asset | None:
        return await self._one(self._sql.asset, (project, kind, asset_id))

    async def by_name(self, project: str, kind: str, scope: str, name: str) -> Asset | None:
        return await self._one(self._sql.asset_by_name, (project, kind, scope, name))

    async def find(
        self,
        project: str,
        kind: str,
        scope: str | None,
        contains: str,
        order_by: Order = "created",
        descending: bool = True,
        limit: int = 100,
        offset: int = 0,
        created_before: int | None = None,
    ) -> list[Asset]:
        where, values = self._where(project, kind, scope, contains)
        if created_before is not None:
            where += f" AND created < {self._driver.flavour.mark}"
            values = (*values, fit_integer(created_before))
        mark, direction = self._driver.flavour.mark, "DESC" if descending else "ASC"
        sql = (
            f"SELECT {names(ASSET)} FROM assets WHERE {where}"
            f" ORDER BY {order_by} {direction}, id {direction} LIMIT {mark} OFFSET {mark}"
        )
        found = await self._driver.read(sql, (*values, *map(fit_integer, (limit, offset))))
        return self._unreadable.read_rows(found, rows.asset_of, "asset", 3)

    async def count(self, project: str, kind: str, scope: str | None, contains: str) -> int:
        where, values = self._where(project, kind, scope, contains)
        return (await self._driver.read(f"SELECT count(*) FROM assets WHERE {where}", values))[0][0]

    def _where(self, project: str, kind: str, scope: str | None, contains: str) -> tuple[str, rows.Row]:
        mark, find_text = self._driver.flavour.mark, self._driver.flavour.find_text
        values = [project, kind]
        where = f"project = {mark} AND kind = {mark}"
        if scope is not None:
            where += f" AND scope = {mark}"
            values.append(scope)
        if contains:
            where += f" AND {find_text}(name, {mark}) > 0"
            values.append(contains)
        return (where, tuple(values)) if all(map(rows.storable, values)) else ("1 = 0", ())

    async def _one(self, sql: str, key: tuple[str, ...]) -> Asset | None:
        if not all(map(rows.storable, key)):
            return None
        found = (await self._driver.read_each(sql, [key]))[0]
        if not found:
            return None
        try:
            return rows.asset_of(found[0])
        except TypeError as error:
            raise Unreadable(self._unreadable.note(f"asset {' '.join(key)}", error)) from error

    async def _check_exists(self, project: str, kind: str, asset_id: str) -> None:
        if not await self.get(project, kind, asset_id):
            raise NotFound(f"there is no {kind} {asset_id}")

    async def _check_free(self, asset: Asset) -> None:
        other = await self.by_name(asset.project, asset.kind, asset.scope, asset.name)
        if other and other.id != asset.id:
            raise AlreadyExists(f"another {asset.kind} is named {asset.name}", field="name")


class AssetsOfKind:
    def __init__(self, driver: Driver, queue: WriteQueue, delete: str, kind: str) -> None:
        self._driver = driver
        self._queue = queue
        self._delete = delete
        self._where = f"kind = {driver.flavour.mark} AND created < {driver.flavour.mark}"
        self._kind = kind

    async def expired(self, before: int) -> int:
        sql = f"SELECT count(*) FROM assets WHERE {self._where}"
        return (await self._driver.read(sql, (self._kind, before)))[0][0]

    async def remove(self, before: int) -> int:
        """Deletes some that were created before that time. Call it until it returns 0, the number deleted."""
        sql = f"SELECT project, kind, id FROM assets WHERE {self._where} LIMIT {_WINDOW}"
        found = await self._driver.read(sql, (self._kind, before))

        async def change() -> list[Step]:
            return [Step(self._delete, [tuple(row) for row in found], bulk=True)] if found else []

        await self._queue.change(change)
        return len(found)
