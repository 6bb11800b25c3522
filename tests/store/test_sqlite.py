"""What is particular to SQLite: durability settings, file modes, plans, the log, and what goes wrong with disks."""

import asyncio
import re
import sqlite3
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.store.samples import creation, job
from turnout.errors import Misconfigured, TimedOut
from turnout.job import LIVE, All, Compare, Label, Page, Query, State
from turnout.store import Batch, Store, StoreError, Unanswered, migrate, sqlite
from turnout.store.codes import FIRST_ENDED, KINDS, REASONS, REPLICA_STATES, STATES
from turnout.store.sqlite import SqliteDriver
from turnout.store.statements import SQLITE, Statements
from turnout.store.where import Selection


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "turnout.db"


@pytest.fixture
async def driver(path: Path) -> AsyncIterator[SqliteDriver]:
    driver = migrate.open_sqlite(path)
    yield driver
    await driver.close()


@pytest.fixture
async def store(driver: SqliteDriver) -> Store:
    return Store(driver)


def pragma(driver: SqliteDriver, name: str) -> object:
    return driver._writing.execute(f"PRAGMA {name}").fetchone()[0]


async def test_a_commit_waits_for_the_disk(driver: SqliteDriver):
    assert pragma(driver, "journal_mode") == "wal"
    assert pragma(driver, "synchronous") == 2, "FULL: the log is flushed at every commit"


async def test_only_the_owner_can_read_the_files(store: Store, path: Path):
    await store.commit(creation(job("a")))
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == {"turnout.db": 0o600, "turnout.db-wal": 0o600, "turnout.db-shm": 0o600}


async def test_files_that_others_could_read_are_closed_to_them(path: Path):
    path.touch(0o644)
    await Store.open("", path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_code_for_every_state_reason_and_kind():
    for codes in (STATES, REASONS, REPLICA_STATES, KINDS):
        kind = type(next(iter(codes)))
        assert set(codes) == set(kind)
        assert len(set(codes.values())) == len(codes)
    assert {state for state, code in STATES.items() if code < FIRST_ENDED} == {
        one for one in State if one in LIVE
    }


MINE_ONLY = Compare("project", "=", "a")
MINE = All(MINE_ONLY, Compare("deleted", "=", None), All(Compare("scope", "=", "b")))


class TestPlans:
    """No statement of daily life reads more than it answers."""

    @pytest.fixture
    async def connection(self, driver: SqliteDriver) -> sqlite3.Connection:
        return driver._writing

    def plan(self, connection: sqlite3.Connection, sql: str, values: tuple[object, ...] | None = None) -> str:
        values = (None,) * sql.count("?") if values is None else values
        return "; ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values))

    async def test_hot_statements_search(self, connection: sqlite3.Connection):
        for name, sql in vars(Statements(SQLITE)).items():
            plan = self.plan(connection, sql)
            # `found` is what a recursive statement has found so far.
            scans = re.sub(r"SCAN (jobs USING (COVERING )?INDEX jobs_live|found)", "", plan)
            assert "SCAN" not in scans, f"{name}: {plan}"

    async def test_live_jobs_come_from_their_own_index(self, connection: sqlite3.Connection):
        assert self.plan(connection, Statements(SQLITE).live_jobs).startswith(
            "SCAN jobs USING INDEX jobs_live"
        )
        assert "USING INDEX jobs_live" in self.plan(connection, Statements(SQLITE).live_replicas)

    async def test_a_page_is_read_in_order_and_no_further(self, connection: sqlite3.Connection):
        for page in (Page(20), Page(20, before_id=7), Page(20, descending=False)):
            plan = self.plan(connection, *Selection(MINE, SQLITE).page(page))
            assert plan.startswith("SEARCH jobs USING INDEX jobs_list (project=? AND scope=?"), plan
            assert "B-TREE" not in plan
        assert "USING INDEX jobs_list" in self.plan(connection, *Selection(MINE, SQLITE).count())

    @pytest.mark.parametrize("query", [All(), MINE_ONLY, All(*MINE, Compare("name", "contains", "x"))])
    async def test_filters_look_at_all_jobs_by_id(self, connection: sqlite3.Connection, query: Query):
        assert self.plan(connection, *Selection(query, SQLITE).page(Page(20))) == "SCAN jobs"
        assert self.plan(connection, *Selection(query, SQLITE).count()) == "SCAN jobs"

    async def test_labels_lead_to_jobs(self, connection: sqlite3.Connection):
        for label in (
            Label("kind", "=", "job"),
            Label("kind", "in", ("job", "x")),
            Label("kind", "!=", None),
        ):
            selection = Selection(All(*MINE, label), SQLITE)
            for sql in (
                selection.page(Page(20)),
                selection.page(Page(20, order_by="name")),
                selection.count(),
            ):
                plan = self.plan(connection, *sql)
                assert "SEARCH jobs USING INTEGER PRIMARY KEY" in plan
                assert "SEARCH labels USING COVERING INDEX labels_value" in plan

    async def test_a_list_of_live_jobs_does_not_look_at_ended_ones(self, connection: sqlite3.Connection):
        query = All(Compare("state", "in", (State.RUNNING, State.QUEUED)), Compare("name", "contains", "x"))
        assert "jobs_live" in self.plan(connection, *Selection(query, SQLITE).page(Page(20)))
        assert "jobs_live" in self.plan(connection, *Selection(query, SQLITE).count())


async def test_a_full_disk_loses_the_batch_and_nothing_else(store: Store, driver: SqliteDriver):
    await store.commit(creation(job("before")))
    pages = pragma(driver, "page_count")
    pragma(driver, f"max_page_count = {pages}")
    lost = [job(f"lost-{number}") for number in range(50)]
    with pytest.raises(StoreError, match="full"):
        await store.commit(creation(*lost))
    assert await store.count(All()) == 1
    pragma(driver, "max_page_count = 1000000")
    await store.commit(creation(*lost))
    assert await store.count(All()) == 51


@pytest.mark.parametrize("rows", ["few", "many"])
async def test_a_disk_that_is_slow_is_waited_for_on_another_thread(
    store: Store, monkeypatch: pytest.MonkeyPatch, rows: str
):
    monkeypatch.setattr(sqlite, "SLOW_SECONDS", 0)
    monkeypatch.setattr(sqlite, "SLOW_COMMITS", 3)
    if rows == "many":
        monkeypatch.setattr(sqlite, "INLINE_WRITES", 0)
    for number in range(10):
        committing = asyncio.ensure_future(store.commit(creation(job(f"job-{number}"))))
        await asyncio.sleep(0)
        await committing
        assert await store.count(All()) == number + 1
    with pytest.raises(StoreError):
        await store.commit(Batch(jobs=[job("unknown")]))
    assert await store.count(All()) == 10


async def test_a_caller_that_gives_up_does_not_stop_its_commit(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sqlite, "INLINE_WRITES", 0)
    first = asyncio.ensure_future(store.commit(creation(job("first"))))
    await asyncio.sleep(0)
    first.cancel()
    await store.commit(creation(job("second")))
    assert await store.count(All()) == 2


async def test_the_log_is_carried_over_and_begun_anew(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sqlite, "CHECKPOINT_PAGES", 20)
    monkeypatch.setattr(sqlite, "LARGEST_LOG_PAGES", 100)
    for number in range(300):
        await store.commit(creation(job(f"job-{number}")))
        await asyncio.sleep(0)
    log = path.with_name("turnout.db-wal").stat().st_size
    assert log < 1_000 * 4096, "300 commits wrote some 2 500 pages"
    assert path.stat().st_size > 20 * 4096
    assert await store.count(All()) == 300


class TestAnotherProgramThatWrites:
    async def test_is_waited_for(self, store: Store, path: Path):
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        committing = asyncio.ensure_future(store.commit(creation(job("a"))))
        await asyncio.sleep(0)
        assert await store.find(All(), Page(1)) == []
        other.execute("ROLLBACK")
        other.close()
        await committing
        assert await store.count(All()) == 1

    async def test_may_outlast_the_caller(self, store: Store, path: Path):
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        committing = asyncio.ensure_future(store.commit(creation(job("a"))))
        await asyncio.sleep(0)
        committing.cancel()
        other.execute("ROLLBACK")
        other.close()
        await store.commit(creation(job("b")))
        assert [one.name for one in await store.find(All(), Page(9))] == ["b"]

    async def test_is_not_waited_for_for_ever(
        self, store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unanswered) as caught:
            await store.commit(creation(job("a")))
        assert isinstance(caught.value, TimedOut)
        other.execute("ROLLBACK")
        other.close()
        await store.commit(creation(job("a")))


class TestOpening:
    def test_a_file_that_is_no_database(self, path: Path):
        path.write_text("this is a diary" * 100)
        with pytest.raises(Misconfigured, match=r"turnout\.db"):
            Store.open("", path)

    def test_another_programs_database(self, path: Path):
        with sqlite3.connect(path) as other:
            other.execute("CREATE TABLE diary (day TEXT)")
        other.close()
        with pytest.raises(Misconfigured, match="not a database of Turnout"):
            Store.open("", path)

    def test_a_directory_that_is_not_there(self, path: Path):
        with pytest.raises(Misconfigured, match="No such file"):
            Store.open("", path / "deeper" / "turnout.db")

    def test_does_not_import_sqlalchemy(self, path: Path):
        """It would take a fifth of a second and 28 MB, at every start."""
        program = (
            "import sys; from pathlib import Path; from turnout.store import Store;"
            f"Store.open('', Path({str(path)!r}));"
            "sys.exit(any(name in sys.modules for name in ('sqlalchemy', 'alembic', 'psycopg')))"
        )
        for _ in ("a new database", "one that is there"):
            subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
