"""Documents that are not jobs, such as algorithms; each belongs to a project."""

from collections.abc import Callable
from typing import Literal

import msgspec

from turnout.errors import Invalid, NotFound, OverQuota
from turnout.job import Asset
from turnout.service.jobs import Caller
from turnout.store import LONGEST_LABEL, Store, storable

MOST_BYTES = 16 << 20
"""A document does not grow beyond this: each change reads and writes the whole of it."""


class Assets:
    """Changes are on disk when they return. The project is always the caller's, regardless of the Asset's own."""

    def __init__(self, store: Store) -> None:
        self._assets = store.assets

    async def create(self, caller: Caller, asset: Asset) -> Asset:
        """Raises AlreadyExists if its name is taken in (kind, scope)."""
        asset = _checked(caller, asset)
        await self._assets.create(asset)
        return asset

    async def get(self, caller: Caller, kind: str, asset_id: str) -> Asset:
        asset = await self._assets.get(caller.project, kind, asset_id)
        if asset is None:
            raise NotFound(f"there is no {kind} {asset_id}")
        return asset

    async def by_name(self, caller: Caller, kind: str, scope: str, name: str) -> Asset | None:
        return await self._assets.by_name(caller.project, kind, scope, name)

    async def update(self, caller: Caller, asset: Asset) -> Asset:
        """Replaces everything but `created`. Raises NotFound or AlreadyExists."""
        asset = _checked(caller, asset)
        await self._assets.update(asset)
        return asset

    async def change(
        self, caller: Caller, kind: str, asset_id: str, now: int, change: Callable[[bytes], bytes]
    ) -> Asset:
        """Replaces the document by what `change` makes of it, with no other change in between. It may be called twice.

        Raises NotFound, OverQuota if the document becomes too large, and what `change` raises.
        """

        def bounded(document: bytes) -> bytes:
            changed = change(document)
            if len(changed) > max(MOST_BYTES, len(document)):
                raise OverQuota(f"The resource would be larger than {MOST_BYTES} bytes; make another one.")
            return changed

        return await self._assets.change(caller.project, kind, asset_id, now, bounded)

    async def delete(self, caller: Caller, kind: str, asset_id: str) -> None:
        await self._assets.delete(caller.project, kind, asset_id)

    async def find(
        self,
        caller: Caller,
        kind: str,
        *,
        scope: str | None = None,
        contains: str = "",
        order_by: Literal["created", "updated", "name"] = "created",
        descending: bool = True,
        limit: int,
        offset: int = 0,
        created_before: int | None = None,
    ) -> list[Asset]:
        """Assets whose name contains `contains`; None as `scope` means any scope."""
        return await self._assets.find(
            caller.project, kind, scope, contains, order_by, descending, limit, offset, created_before
        )

    async def count(self, caller: Caller, kind: str, *, scope: str | None = None, contains: str = "") -> int:
        return await self._assets.count(caller.project, kind, scope, contains)


def _checked(caller: Caller, asset: Asset) -> Asset:
    for field in ("id", "scope", "name"):
        text = getattr(asset, field)
        if not storable(text):
            raise Invalid(f"the {field} of a {asset.kind} has characters that cannot be stored", field=field)
        if len(text.encode()) > LONGEST_LABEL // 3:
            raise Invalid(
                f"the {field} of a {asset.kind} is longer than {LONGEST_LABEL // 3} bytes", field=field
            )
    return msgspec.structs.replace(asset, project=caller.project)
