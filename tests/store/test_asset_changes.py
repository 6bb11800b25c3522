"""Changes of one asset at the same time: none is lost."""

import asyncio

import pytest

from turnout.errors import NotFound
from turnout.job import Asset
from turnout.store import Store


async def test_no_change_is_lost(store: Store):
    await store.assets.create(Asset("p", "k", "a", "", "a", 1, 1, b""))

    async def append(letter: bytes) -> None:
        await store.assets.change("p", "k", "a", 2, lambda document: document + letter)

    await asyncio.gather(*(append(bytes([letter])) for letter in range(65, 91)))
    changed = await store.assets.get("p", "k", "a")
    assert changed is not None
    assert sorted(changed.document) == list(range(65, 91))
    assert changed.updated >= 26
    with pytest.raises(NotFound):
        await store.assets.change("p", "k", "b", 2, lambda document: document)


async def test_pages_by_creation(store: Store):
    for at in (1, 2, 3):
        await store.assets.create(Asset("p", "k", f"a{at}", "", f"a{at}", at, at, b""))
    found = await store.assets.find("p", "k", None, "", limit=2)
    older = await store.assets.find("p", "k", None, "", limit=2, created_before=found[-1].created)
    assert [one.id for one in (*found, *older)] == ["a3", "a2", "a1"]
