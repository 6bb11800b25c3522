"""The tables, the migrations, and the text that makes a new SQLite database say the same."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine
from sqlalchemy.dialects import sqlite as sqlite_dialect

from tests.store.samples import creation, job
from turnout.errors import Misconfigured
from turnout.job import Asset, Attempt, Event, Job, PastAttempt, Reason, Replica, ReplicaState
from turnout.store import Store, StoredKey, migrate, schema
from turnout.store.statements import KEY, SAMPLE

STORE = Path(migrate.__file__).parent


class Database:
    """One of either kind, empty at first."""

    def __init__(self, url: str, path: Path) -> None:
        self.url = url
        self.path = path

    def open(self) -> Store:
        return Store.open(self.url, self.path)

    def upgrade(self, revision: str) -> None:
        if self.url:
            with psycopg.connect(self.url, autocommit=True) as connection:
                migrate.upgrade_postgres(connection, revision)
        else:
            with contextlib.closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
                migrate.upgrade_sqlite(connection, revision)

    def run(self, sql: str) -> None:
        with self.connected() as connection:
            connection.exec_driver_sql(sql)
            connection.commit()

    @contextlib.contextmanager
    def connected(self) -> Iterator[Connection]:
        url = self.url.replace("postgresql:", "postgresql+psycopg:") or f"sqlite:///{self.path}"
        engine = create_engine(url)
        with engine.connect() as connection:
            yield connection
        engine.dispose()


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    url = request.getfixturevalue("postgres").database() if request.param == "postgres" else ""
    return Database(url, tmp_path / "turnout.db")


def test_the_newest_revision_is_the_one_that_is_looked_for():
    assert ScriptDirectory(STORE / "migrations").get_heads() == [migrate.HEAD]


def test_the_text_for_new_databases_is_what_the_tables_say():
    text = (STORE / "schema.sql").read_text()
    assert text == schema.ddl(sqlite_dialect.dialect()), "python -m turnout.store.schema prints the new one"


def test_tables_have_the_fields_of_the_records():
    """The statements are made from these."""
    assert tuple(schema.jobs.columns.keys()) == Job.__struct_fields__
    assert set(schema.replicas.columns.keys()) == {*Replica.__struct_fields__, "rank"}
    assert tuple(schema.events.columns.keys()) == ("number", *Event.__struct_fields__)
    assert tuple(schema.past.columns.keys()) == PastAttempt.__struct_fields__
    assert tuple(schema.samples.columns.keys()) == SAMPLE
    assert tuple(schema.assets.columns.keys()) == Asset.__struct_fields__
    assert tuple(schema.keys.columns.keys()) == StoredKey._fields == KEY


def differences(database: Database) -> list[object]:
    with database.connected() as connection:
        return compare_metadata(MigrationContext.configure(connection), schema.metadata)


async def test_a_new_database_has_the_tables(database: Database):
    await database.open().close()
    assert differences(database) == []


async def test_migrations_lead_to_the_tables(database: Database):
    database.upgrade("head")
    assert differences(database) == []


def made_by(database: Database) -> list[tuple[str, ...]]:
    """Names, conditions and order of columns: what `compare_metadata` does not look at."""
    tables = "SELECT tbl_name, name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND tbl_name <> 'alembic_version'"
    indexes = "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'"
    with database.connected() as connection:
        rows = connection.exec_driver_sql(indexes if database.url else tables).fetchall()
    return sorted(
        (table, name, " ".join(sql.split())) for table, name, sql in rows if table != "alembic_version"
    )


async def test_migrations_and_new_databases_are_alike_to_the_letter(
    database: Database, request: pytest.FixtureRequest, tmp_path: Path
):
    database.upgrade("head")
    url = request.getfixturevalue("postgres").database() if database.url else ""
    other = Database(url, tmp_path / "other.db")
    await other.open().close()
    assert made_by(database) == made_by(other)


@pytest.mark.parametrize("revision", ["0001", "0002", "0003", "0004", "0005", "0006", "0007"])
async def test_a_database_of_every_release_can_be_opened(database: Database, revision: str):
    database.upgrade(revision)
    store = database.open()
    one = job("a")
    await store.commit(creation(one))
    assert await store.job(one.id) == one
    await store.close()
    assert differences(database) == []


async def test_what_was_there_is_there_with_the_new_columns(database: Database):
    database.upgrade("0002")
    database.run(
        "INSERT INTO replicas VALUES (7, 1, 'worker', 2, 11, 'n', 'a', 5, '', 1, 2, NULL, 9, 'm', 0)"
    )
    database.run("INSERT INTO past VALUES (7, 1, 1, 2, 3, 'm', 'worker-2')")
    store = database.open()
    lost = Replica(7, 1, "worker", 2, ReplicaState.FAILED, "n", "a", 5, "", 1, 2, None, 9, "m", restarts=0)
    assert await store.gang(Attempt(7, 1)) == [lost]
    assert await store.past(7) == [PastAttempt(7, 1, 1, 2, Reason.KILLED, "m", "worker-2", code=None)]
    await store.close()


async def test_searches_of_before_get_their_label(database: Database):
    database.upgrade("0007")
    columns = "job, number, id, algorithm, child, created, state, told"
    blob = "'\\x'" if database.url else "x''"
    for number in (1, 2):
        database.run(f"INSERT INTO trials ({columns}) VALUES (7, {number}, 'a', 0, 8, 1, 0, {blob})")
    database.run("INSERT INTO labels (job, key, value) VALUES (9, 'labels.search', 'x')")
    await database.open().close()
    with database.connected() as connection:
        found = connection.exec_driver_sql("SELECT job, value FROM labels WHERE key = 'search'").fetchall()
    assert [tuple(row) for row in found] == [(7, "")]


async def test_a_database_of_a_newer_turnout_is_left_alone(database: Database):
    await database.open().close()
    database.run("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(Misconfigured, match=r"schema 9999, this Turnout knows \d+"):
        database.open()


async def test_a_database_of_another_program_is_left_alone(database: Database):
    database.run("CREATE TABLE alembic_version (version_num VARCHAR(32))")
    database.run("INSERT INTO alembic_version VALUES ('ae10f3')")
    with pytest.raises(Misconfigured, match="not Turnout's"):
        database.open()


async def test_an_upgrade_that_fails_changes_nothing(database: Database, monkeypatch: pytest.MonkeyPatch):
    """The migrations stand in one transaction: an older database stays what it was."""
    database.run("CREATE TABLE events (something_else INTEGER)")
    with pytest.raises(Exception, match="events"):
        database.upgrade("head")
    with database.connected() as connection:
        names = set(connection.dialect.get_table_names(connection))  # type: ignore[attr-defined]
    assert names == {"events"}
