"""Sweeps delete expired data of every kind, in small steps, and nothing else."""

import asyncio
import time
from pathlib import Path

import pytest

from tests.store.conftest import opening, postgres, store
from tests.store.samples import creation
from tests.store.test_retention import ended, fill, kept, rows
from turnout.control.sweep import Aged, Sweeper, Swept
from turnout.errors import Busy
from turnout.job import All, Asset, Attempt, Job
from turnout.limits import Limits
from turnout.store import Store

__all__ = ["opening", "postgres", "store"]

NOW = time.time_ns()
MONTHS_AGO = NOW - 100 * 86_400 * 10**9


class Disk:
    """Of an engine only what lies on its disk."""

    def __init__(self, *attempts: Attempt) -> None:
        self.there = list(attempts)

    async def attempts_on_disk(self) -> list[Attempt]:
        return sorted(self.there)

    async def remove(self, attempts: list[Attempt]) -> None:
        self.there = [one for one in self.there if one not in attempts]


def newest(name: str = "newest") -> Job:
    """It has ended just now."""
    job = ended(name, MONTHS_AGO)
    job.ended = NOW
    return job


async def swept(sweeper: Sweeper, *, dry: bool = False) -> dict[str, Swept]:
    return {one.what: one async for one in sweeper.run(dry=dry)}


async def nothing_is_deleted(job_id: int, by: str) -> None:
    raise AssertionError(f"{job_id} was deleted by {by}")


def sweeper(store: Store, disk: Disk | None = None, **limits: float) -> Sweeper:
    return Sweeper(store, {"local": disk or Disk()}, Limits(**limits), nothing_is_deleted)  # type: ignore[arg-type]


async def test_by_default_deleted_jobs_go_and_finished_ones_stay(store: Store):
    gone, fresh, there = (
        ended("a", MONTHS_AGO, MONTHS_AGO),
        ended("b", MONTHS_AGO, NOW),
        ended("c", MONTHS_AGO),
    )
    await kept(store, gone, fresh, there, newest())
    disk = Disk(*(Attempt(one.id, 2) for one in (gone, there)), Attempt(7, 1))
    one = sweeper(store, disk, log_days=0)
    before = await rows(store)
    found = await swept(one)
    assert found["deleted jobs"].count == 1
    assert found["logs and files of attempts (local)"].count == 2
    assert disk.there == [Attempt(there.id, 2)]
    assert await store.job(gone.id) is None
    assert await store.job(fresh.id) is not None
    assert await store.job(there.id) is not None
    after = await rows(store)
    assert {name: before[name] - after[name] for name in ("jobs", "documents", "events", "trials")} == {
        name: before[name] // 4 for name in ("jobs", "documents", "events", "trials")
    }


async def test_a_dry_run_says_what_a_sweep_takes_and_takes_nothing(store: Store):
    await kept(store, ended("a", MONTHS_AGO, MONTHS_AGO), ended("b", MONTHS_AGO), newest())
    disk = Disk(Attempt(7, 1))
    one = sweeper(store, disk, event_days=5, measurement_days=5, attempt_days=5, sample_days=5)
    before = await rows(store)
    would = await swept(one, dry=True)
    assert await rows(store) == before
    assert disk.there == [Attempt(7, 1)]
    did = await swept(one)
    assert {"deleted jobs", "events of ended jobs", "samples of ended jobs"} <= set(would)
    del did["space in the database"]
    assert would == did, "no row is counted twice"
    assert sum(one.rows for one in would.values()) == sum(before.values()) - sum((await rows(store)).values())
    assert did["samples of ended jobs"].rows == 50
    assert did["attempts of ended jobs"].rows == 4
    again = await swept(one, dry=True)
    assert {one.count for one in again.values()} == {0}


async def test_finished_jobs_are_deleted_where_the_settings_say_so(store: Store):
    old, search, trial = ended("a", MONTHS_AGO), ended("b", MONTHS_AGO), ended("c", MONTHS_AGO)
    await kept(store, old, search, trial, newest())
    asked: list[tuple[int, str]] = []

    async def delete(job_id: int, by: str) -> None:
        asked.append((job_id, by))

    one = Sweeper(store, {}, Limits(finished_days=30), delete)
    assert (await swept(one, dry=True))["jobs that ended long ago"].count == 3
    assert asked == []
    await swept(one)
    assert sorted(asked) == [(each.id, "retention") for each in (old, search, trial)]


async def test_there_is_one_sweep_at_a_time(store: Store):
    one = sweeper(store)
    first = one.run(dry=False)
    await anext(first)
    with pytest.raises(Busy, match="another sweep is running"):
        await swept(one)
    await swept(one, dry=True)
    await first.aclose()  # type: ignore[attr-defined]
    assert await swept(one)


@pytest.mark.slow
async def test_a_sweep_of_many_deleted_jobs_frees_space_and_delays_nobody(tmp_path: Path):
    """Commits of others come in between: 99 of 100 wait less than a hundredth of the sweep, and none a 20th."""
    database = tmp_path / "turnout.db"
    await Store.open("", database).close()
    count = 50_000
    await asyncio.to_thread(fill, database, count)
    large = database.stat().st_size
    store = Store.open("", database)
    await store.commit(creation(newest()))
    sweeping = asyncio.create_task(swept(sweeper(store)))
    began = time.monotonic()
    waits: list[float] = []
    while not sweeping.done():
        at = time.monotonic()
        await store.commit(creation(newest(f"j{len(waits)}")))
        waits.append(time.monotonic() - at)
        await asyncio.sleep(0.002)
    assert sweeping.result()["deleted jobs"].count == count
    assert max(waits) < (time.monotonic() - began) / 20
    assert sorted(waits)[len(waits) * 99 // 100] < (time.monotonic() - began) / 100
    assert await store.count(All()) == len(waits) + 1
    await store.close()
    assert database.stat().st_size < large / 5


async def test_assets_of_a_kind_go_with_their_age(store: Store):
    for project, kind, name, created in (
        ("a", "x", "1", MONTHS_AGO),
        ("b", "x", "1", NOW),
        ("a", "y", "1", MONTHS_AGO),
    ):
        await store.assets.create(Asset(project, kind, name, "", name, created, created, b"{}"))
    aged = Aged("things", "operation_days", store.assets.of_kind("x"))
    one = Sweeper(store, {}, Limits(operation_days=30), nothing_is_deleted, aged=[aged])
    assert (await swept(one, dry=True))["things"].count == 1
    assert (await swept(one))["things"].count == 1
    assert (await swept(one))["things"].count == 0
    assert await store.assets.get("a", "x", "1") is None
    assert await store.assets.get("b", "x", "1")
    assert await store.assets.get("a", "y", "1")
