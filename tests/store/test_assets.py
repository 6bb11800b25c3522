"""Documents that are not jobs, and keys: written beside control's batches."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from tests.store.samples import creation, job
from turnout.errors import AlreadyExists, NotFound, TurnoutError
from turnout.job import All, Asset
from turnout.store import Store, StoredKey, StoreError
from turnout.store.driver import Step
from turnout.store.write_queue import WriteQueue


def asset(
    name: str, project: str = "default", kind: str = "algorithm", scope: str = "0", at: int = 1
) -> Asset:
    return Asset(project, kind, f"id of {name}", scope, name, at, at, f"{name} \xff".encode("latin-1"))


def changed(one: Asset, **fields: object) -> Asset:
    return msgspec.structs.replace(one, **fields)


class TestAssets:
    async def test_come_back_as_they_were(self, store: Store):
        one = asset("resnet")
        await store.assets.create(one)
        assert await store.assets.get("default", "algorithm", one.id) == one
        assert await store.assets.by_name("default", "algorithm", "0", "resnet") == one

    async def test_belong_to_a_project_and_a_kind(self, store: Store):
        one, others = asset("a"), [asset("a", project="other"), asset("a", kind="experiment")]
        for each in (one, *others):
            await store.assets.create(each)
        assert await store.assets.find("default", "algorithm", None, "") == [one]
        await store.assets.delete("default", "algorithm", one.id)
        assert await store.assets.get("default", "algorithm", one.id) is None
        for each in others:
            assert await store.assets.get(each.project, each.kind, each.id) == each

    async def test_have_a_name_of_their_own_in_their_scope(self, store: Store):
        one = asset("a")
        await store.assets.create(one)
        await store.assets.create(changed(one, id="2", scope="1"))
        for taken in (changed(one, id="3"), changed(one, name="b"), one):
            with pytest.raises(AlreadyExists):
                await store.assets.create(taken)
        assert await store.assets.count("default", "algorithm", None, "") == 2

    async def test_change(self, store: Store):
        one = asset("a")
        await store.assets.create(one)
        await store.assets.create(asset("b"))
        new = changed(one, name="c", updated=5, document=b"new")
        await store.assets.update(new)
        await store.assets.update(new)
        assert await store.assets.get("default", "algorithm", one.id) == new
        with pytest.raises(AlreadyExists):
            await store.assets.update(changed(one, name="b"))
        with pytest.raises(NotFound):
            await store.assets.update(changed(one, id="unknown", name="d"))
        assert await store.assets.get("default", "algorithm", one.id) == new

    async def test_can_be_deleted_once(self, store: Store):
        one = asset("a")
        await store.assets.create(one)
        await store.assets.delete("default", "algorithm", one.id)
        with pytest.raises(NotFound):
            await store.assets.delete("default", "algorithm", one.id)
        await store.assets.create(one)

    async def test_are_listed(self, store: Store):
        names = ["b-resnet", "a-resnet", "d-bert", "c-%"]
        for number, name in enumerate(names):
            await store.assets.create(asset(name, scope=str(number % 2), at=number))
        find, kind = store.assets.find, ("default", "algorithm")
        assert [one.name for one in await find(*kind, None, "")] == names[::-1]
        assert [one.name for one in await find(*kind, None, "", "name", False, 2, 1)] == names[0:1] + names[
            3:
        ]
        assert [one.name for one in await find(*kind, "0", "resnet")] == ["b-resnet"]
        assert [one.name for one in await find(*kind, None, "%")] == ["c-%"]
        assert await find(*kind, None, "\0") == []
        assert await store.assets.count(*kind, "1", "") == 2
        assert await store.assets.count(*kind, None, "resnet") == 2

    async def test_that_no_row_can_hold_are_not_there(self, store: Store):
        assert await store.assets.get("default", "algorithm", "\0") is None
        assert await store.assets.by_name("default", "algorithm", "0", "\ud800") is None


class TestKeys:
    async def test_are_kept_until_they_are_removed(self, opening: Callable[[], Store]):
        key, older = StoredKey("AKID1", "secret", "p", "Ann's", 2), StoredKey("AKID2", "secret", "q", "", 1)
        store = opening()
        await store.keys.add(key)
        await store.keys.add(older)
        with pytest.raises(AlreadyExists):
            await store.keys.add(key)
        await store.close()
        store = opening()
        assert await store.keys.all() == [older, key]
        await store.keys.remove("AKID1")
        for unknown in ("AKID1", "\0"):
            with pytest.raises(NotFound):
                await store.keys.remove(unknown)
        assert await store.keys.all() == [older]
        await store.close()


async def outcome(change: asyncio.Future[None] | asyncio.Task[None]) -> type[TurnoutError] | None:
    try:
        await change
    except TurnoutError as error:
        return type(error)
    return None


class TestTurns:
    async def test_only_one_of_many_concurrent_creates_gets_a_name(self, store: Store):
        wanted = [asyncio.create_task(store.assets.create(changed(asset("a"), id=str(n)))) for n in range(20)]
        outcomes = [await outcome(one) for one in wanted]
        assert sorted(outcomes, key=str) == [AlreadyExists] * 19 + [None]

    async def test_changes_and_batches_do_not_get_into_each_others_transactions(self, store: Store):
        """Batches that fail, batches that need a thread, and changes, all at once: each is whole or not there."""

        async def batches() -> None:
            for number in range(30):
                size = 300 if number % 10 == 0 else 2
                jobs = [job(f"job-{number}-{index}") for index in range(size)]
                await store.commit(creation(*jobs))
                with pytest.raises(StoreError):
                    await store.commit(creation(job(f"lost-{number}"), jobs[0]))

        async def changes(who: int) -> None:
            for number in range(20):
                one = asset(f"{who}-{number}")
                await store.assets.create(one)
                assert await store.assets.get(one.project, one.kind, one.id) == one

        await asyncio.gather(batches(), *map(changes, range(5)))
        assert await store.count(All()) == 3 * 300 + 27 * 2
        assert await store.assets.count("default", "algorithm", None, "") == 100

    async def test_a_cancelled_caller_stops_nothing(self, store: Store):
        impatient = asyncio.create_task(store.assets.create(asset("a")))
        await asyncio.sleep(0)
        impatient.cancel()
        await store.assets.create(asset("b"))
        assert await store.assets.count("default", "algorithm", None, "") == 2


class Recording:
    """Stands in for a database: each write is let through one by one."""

    def __init__(self) -> None:
        self.written: list[list[str]] = []
        self.gate = asyncio.Semaphore(0)

    async def write(self, steps: list[Step]) -> None:
        await self.gate.acquire()
        self.written.append([step.sql for step in steps])


async def test_waiting_changes_share_a_commit():
    driver = Recording()
    writing = WriteQueue(driver)  # type: ignore[arg-type]

    async def change(name: str) -> None:
        async def look() -> list[Step]:
            return [Step(name, [])]

        await writing.change(look)

    async with asyncio.TaskGroup() as group:
        group.create_task(writing.write([Step("batch", [])]))
        await asyncio.sleep(0)
        for name in ("a", "b", "c"):
            group.create_task(change(name))
        for _ in range(2):
            driver.gate.release()
    assert driver.written == [["batch"], ["a", "b", "c"]]
