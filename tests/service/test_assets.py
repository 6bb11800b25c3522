"""Documents that are not jobs."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from turnout.errors import AlreadyExists, Invalid, NotFound, OverQuota
from turnout.job import Asset
from turnout.service import Assets, Caller
from turnout.service.assets import MOST_BYTES
from turnout.store import Store

ANN, BOB = Caller("AKIDann", "vision"), Caller("AKIDbob", "speech")
RESNET = Asset("", "algorithm", "a-1", "0", "resnet", 1, 1, b"{}")


@pytest.fixture
async def assets(tmp_path: Path) -> AsyncIterator[Assets]:
    store = Store.open("", tmp_path / "turnout.db")
    yield Assets(store)
    await store.close()


async def test_each_project_has_its_own(assets: Assets) -> None:
    created = await assets.create(ANN, RESNET)
    assert created.project == "vision"
    assert await assets.get(ANN, "algorithm", "a-1") == created
    assert await assets.by_name(BOB, "algorithm", "0", "resnet") is None
    await assets.create(BOB, msgspec.structs.replace(created, document=b"Bob's"))
    assert (await assets.get(ANN, "algorithm", "a-1")).document == b"{}"
    await assets.delete(BOB, "algorithm", "a-1")
    assert await assets.count(ANN, "algorithm") == 1
    for call in (assets.get, assets.delete):
        with pytest.raises(NotFound, match="there is no algorithm a-1"):
            await call(BOB, "algorithm", "a-1")


async def test_a_name_is_given_once_in_a_scope(assets: Assets) -> None:
    await assets.create(ANN, RESNET)
    again = msgspec.structs.replace(RESNET, id="a-2")
    with pytest.raises(AlreadyExists, match="another algorithm is named resnet"):
        await assets.create(ANN, again)
    await assets.create(ANN, msgspec.structs.replace(again, scope="1"))
    assert [one.id for one in await assets.find(ANN, "algorithm", limit=10, descending=False)] == [
        "a-1",
        "a-2",
    ]
    assert await assets.count(ANN, "algorithm", scope="1", contains="res") == 1


async def test_an_update_keeps_when_it_was_made(assets: Assets) -> None:
    await assets.create(ANN, RESNET)
    await assets.update(ANN, msgspec.structs.replace(RESNET, created=9, updated=9, document=b"new"))
    found = await assets.get(ANN, "algorithm", "a-1")
    assert (found.created, found.updated, found.document) == (1, 9, b"new")
    with pytest.raises(NotFound):
        await assets.update(BOB, RESNET)


@pytest.mark.parametrize("name", ["a\0", "\ud800", "训" * 300])
async def test_a_name_that_cannot_be_kept(assets: Assets, name: str) -> None:
    with pytest.raises(Invalid) as refused:
        await assets.create(ANN, msgspec.structs.replace(RESNET, name=name))
    assert refused.value.field == "name"


async def test_a_document_does_not_grow_without_end(assets: Assets) -> None:
    await assets.create(ANN, msgspec.structs.replace(RESNET, document=bytes(MOST_BYTES - 1)))
    await assets.change(ANN, "algorithm", "a-1", 2, lambda document: document + b"x")
    with pytest.raises(OverQuota):
        await assets.change(ANN, "algorithm", "a-1", 3, lambda document: document + b"x")
    assert len((await assets.get(ANN, "algorithm", "a-1")).document) == MOST_BYTES
