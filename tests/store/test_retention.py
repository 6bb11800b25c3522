"""Rows whose time is over go, in small steps; what is to stay stays."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path

import psycopg
import pytest

from tests.store import samples
from tests.store.samples import creation, gang, job
from tests.store.servers import Server
from turnout.job import (
    All,
    Attempt,
    Event,
    EventKind,
    IdMaker,
    Job,
    Measurement,
    PastAttempt,
    Reason,
    ReplicaName,
    Sample,
    State,
    Trial,
)
from turnout.store import Batch, Store, retention
from turnout.store.migrate import upgrade_sqlite

AT = 10**18
TABLES = ("jobs", "documents", "replicas", "events", "labels", "past", "samples", "trials", "measurements")


@pytest.fixture(autouse=True)
def _ids_of_that_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids grow, also from one test to the next, and they contain the time that the sweep asks for."""
    monkeypatch.setattr(samples, "_ids", IdMaker())


def ended(name: str, at: int = AT, deleted: int | None = None) -> Job:
    one = job(name, at=at)
    one.state, one.reason, one.ended, one.attempt, one.deleted = (
        State.SUCCEEDED,
        Reason.SUCCEEDED,
        at,
        2,
        deleted,
    )
    return one


async def kept(store: Store, *jobs: Job) -> None:
    """With something in every table."""
    batch = creation(*jobs)
    for one in jobs:
        batch.attempts += gang(one, 1) + gang(one, 2)
        batch.labels.append((one.id, {"team": "vision"}))
        batch.past.append(PastAttempt(one.id, 1, AT, AT, Reason.KILLED, "m", "master-0"))
        batch.samples += [
            (Attempt(one.id, 2), Sample(ReplicaName("master", 0), AT + n, 1.0)) for n in range(50)
        ]
        batch.new_trials.append(Trial(one.id, 0, "t", 0, {}, child=0, created=AT))
        batch.measurements += [Measurement(one.id, 0, step, AT, {"loss": 0.5}) for step in range(5)]
    await store.commit(batch)


async def rows(store: Store) -> dict[str, int]:
    driver = store.retention._driver
    return {name: (await driver.read(f"SELECT count(*) FROM {name}"))[0][0] for name in TABLES}


async def swept(store: Store, before: int) -> int:
    removed, after = 0, (0, 0)
    while found := await store.retention.deleted(before, after):
        await store.retention.remove([one.id for one in found])
        removed += len(found)
        after = (found[-1].deleted or 0, found[-1].id)
    return removed


async def test_a_job_that_was_deleted_long_ago_goes_from_every_table(store: Store):
    old, fresh, there = ended("a", deleted=AT), ended("b", deleted=AT + 100), ended("c")
    await kept(store, old, fresh, there)
    before = await rows(store)
    weight = await store.retention.amount([old.id])
    assert await swept(store, AT + 100) == 1
    after = await rows(store)
    assert {name: before[name] - after[name] for name in TABLES} == {
        name: count // 3 for name, count in before.items()
    }
    assert weight.rows == sum(before.values()) // 3
    assert weight.bytes > 50 * 60
    assert await store.job(old.id) is None
    assert await store.job(fresh.id)


async def test_a_job_that_was_deleted_and_still_runs_stays(store: Store):
    running = job("a")
    running.deleted = AT
    await store.commit(creation(running, job("b")))
    assert await swept(store, AT + 100) == 0


async def test_no_id_is_ever_given_twice(store: Store):
    """The newest stays: the next id is made from it."""
    first, last = ended("a", deleted=AT), ended("b", deleted=AT)
    await kept(store, first, last)
    assert await swept(store, AT + 1) == 1
    assert await store.last_id() == last.id


async def test_the_trials_of_a_search_stay_with_it(store: Store):
    search, child, newest = ended("search"), ended("child", deleted=AT), ended("newest")
    await kept(store, search, child, newest)
    await store.commit(Batch(new_trials=[Trial(search.id, 1, "t1", 0, {}, child=child.id, created=AT)]))
    assert await swept(store, AT + 1) == 0
    assert await store.retention.trials_of_searches([search.id, child.id]) == {child.id}
    search.deleted = AT
    await store.commit(Batch(jobs=[search]))
    assert await swept(store, AT + 1) == 2


async def test_a_job_with_many_rows_goes_in_many_steps(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(retention, "STEP_ROWS", (20, 20))
    large = ended("a", deleted=AT)
    await kept(store, large, ended("b"))
    many = [Event(large.id, AT, EventKind.NOTE, f"note {number}") for number in range(333)]
    await store.commit(Batch(events=many))
    assert await swept(store, AT + 1) == 1
    assert (await rows(store))["events"] == 1


@pytest.mark.parametrize("kind", ["events", "samples", "measurements", "attempts"])
async def test_what_may_go_before_its_job(store: Store, kind: str):
    one, other = ended("a"), ended("b")
    other.ended = AT + 10**15
    await kept(store, one, other)
    before = await rows(store)
    found, more = await store.retention.ended(AT + 10**9)
    assert [each.id for each in found] == [one.id]
    assert more is None
    weight = await store.retention.amount([one.id], kind)
    assert await store.retention.remove([one.id], kind) == weight.rows > 0
    after = await rows(store)
    gone = {name for name in TABLES if before[name] != after[name]}
    assert gone == ({"past", "replicas"} if kind == "attempts" else {kind})
    if kind == "attempts":
        assert len(await store.gang(Attempt(one.id, 2))) == 3
        assert await store.gang(Attempt(one.id, 1)) == []


def fill(database: Path, count: int, document: int = 600) -> None:
    """Deleted jobs by the thousand, written past the store."""
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        for first in range(1, count + 1, 5000):
            numbers = range(first, min(first + 5000, count + 1))
            connection.execute("BEGIN")
            connection.executemany(
                "INSERT INTO jobs (id, project, dialect, scope, handle, name, cluster, state, priority, created,"
                " updated, attempt, started, ended, deleted, reason, message)"
                " VALUES (?, 'default', 'tia', 'tia:ap-beijing', '', 'n', 'ap-beijing', 10, 0,"
                f" {AT}, {AT}, 1, {AT}, {AT}, {AT}, 0, '')",
                [(number,) for number in numbers],
            )
            connection.executemany(
                "INSERT INTO documents VALUES (?, ?, ?)", [(n, b"d" * document, b"s" * 400) for n in numbers]
            )
            connection.executemany(
                "INSERT INTO replicas VALUES (?, 1, 'master', 0, 10, 'n', '127.0.0.1', 1, '', ?, ?, 0, NULL, '', 0, 0)",
                [(n, AT, AT) for n in numbers],
            )
            connection.executemany(
                f"INSERT INTO events (job, at, kind, message) VALUES (?, {AT}, 0, 'something has happened')",
                [(n,) for n in numbers for _ in range(4)],
            )
            connection.execute("COMMIT")


async def shrunk(store: Store) -> None:
    while await store.retention.shrink():
        pass


async def test_the_space_comes_back_while_others_write(tmp_path: Path):
    database = tmp_path / "turnout.db"
    await Store.open("", database).close()
    await asyncio.to_thread(fill, database, 20_000)
    store = Store.open("", database)
    large = database.stat().st_size
    newest = job("newest")
    await store.commit(creation(newest))
    done = asyncio.Event()

    async def sweep() -> int:
        try:
            removed = await swept(store, AT + 1)
            await shrunk(store)
            return removed
        finally:
            done.set()

    async def create() -> int:
        made = 0
        while not done.is_set():
            await store.commit(creation(job(f"j{made}")))
            made += 1
            await asyncio.sleep(0.001)
        return made

    removed, made = await asyncio.gather(sweep(), create())
    assert removed == 20_000
    assert made > 20
    assert await store.count(All()) == made + 1
    await store.close()
    assert database.stat().st_size < large / 5
    with contextlib.closing(sqlite3.connect(database)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_on_postgresql_later_jobs_take_the_space_of_those_that_went(postgres: Server):
    """Its own autovacuum does in the end what is asked for here at once."""
    url = postgres.database()
    name = url.partition("@/")[2].partition("?")[0]
    count = 3_000
    store = Store.open(url, Path("unused"))

    def size() -> int:
        with psycopg.connect(url) as connection:
            found = connection.execute(
                "SELECT sum(pg_total_relation_size(relid)) FROM pg_stat_user_tables"
            ).fetchone()
        assert found
        return int(found[0])

    for turn in range(3):
        numbers = f"FROM generate_series({turn * count + 1}, {(turn + 1) * count}) AS n"
        await asyncio.to_thread(
            postgres.run,
            name,
            "INSERT INTO jobs SELECT n, 'default', 'tia', 'tia:ap-beijing', '', 'n', 'ap-beijing', 10, 0,"
            f" {AT}, {AT}, 1, {AT}, {AT}, {AT}, 0, '' {numbers}",
            f"INSERT INTO documents SELECT n, repeat('d', 600)::bytea, repeat('s', 400)::bytea {numbers}",
            f"INSERT INTO events (job, at, kind, message) SELECT n, {AT}, 0, 'something has happened' {numbers}",
        )
        if turn == 0:
            first = size()
            await store.commit(creation(job("newest")))
        assert size() < 1.2 * first
        assert await swept(store, AT + 1) == count
        await asyncio.to_thread(postgres.run, name, "VACUUM")
    assert size() < 1.2 * first
    await store.close()


async def test_no_step_holds_the_database_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """However many jobs there are, each transaction is of a bounded number of rows."""
    database = tmp_path / "turnout.db"
    await Store.open("", database).close()
    await asyncio.to_thread(fill, database, 3000)
    store = Store.open("", database)
    await store.commit(creation(job("newest")))
    sizes: list[int] = []
    driver = store.retention._driver
    write = driver.write

    async def counting(steps: list) -> None:
        before = sum((await rows(store)).values())
        await write(steps)
        sizes.append(before - sum((await rows(store)).values()))

    monkeypatch.setattr(driver, "write", counting)
    assert await swept(store, AT + 1) == 3000
    assert max(sizes) <= 2 * retention.STEP_ROWS[1]
    assert len(sizes) > 3000 * 8 / retention.STEP_ROWS[1]
    await store.close()


async def test_a_database_of_an_earlier_turnout_gives_its_space_back_too(tmp_path: Path):
    """It is rebuilt once, at the first start."""
    database = tmp_path / "turnout.db"
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as connection:
        upgrade_sqlite(connection, "0004")
    await asyncio.to_thread(fill, database, 5000)
    large = database.stat().st_size
    store = Store.open("", database)
    await store.commit(creation(job("newest")))
    assert await swept(store, AT + 1) == 5000
    await shrunk(store)
    await store.close()
    assert database.stat().st_size < large / 3
