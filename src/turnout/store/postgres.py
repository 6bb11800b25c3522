"""PostgreSQL through psycopg. Everything runs in threads. An advisory lock prevents a second service."""

from collections.abc import Callable, Sequence
from typing import LiteralString, TypeVar, cast

import psycopg
from psycopg import errors

from turnout.errors import Misconfigured
from turnout.store import migrate, postgres_check
from turnout.store.driver import Connect, ConnectionThreads, Step, StoreError, Unanswered
from turnout.store.rows import Row
from turnout.store.statements import POSTGRES

ANSWER_SECONDS = 10
LOCK_SECONDS = 3
"""Seconds. A server takes a moment to notice that a killed service has disconnected."""
READERS = 4
_LOCK = 0x7475726E6F7574

Result = TypeVar("Result")
Connection = psycopg.Connection[Row]


class ConnectionBroken(StoreError):
    """The connection broke; the next call opens another."""


class PostgresDriver:
    flavour = POSTGRES

    def __init__(self, url: str) -> None:
        self._url = url
        # The lock is taken now and not with the first batch: a second service must fail at its start.
        self._first = [_connect_for_writing(url)]
        self._writer = ConnectionThreads("store-writer", self._for_writing, _usable)
        self._readers = ConnectionThreads("store-reader", lambda: connect(url), _usable, threads=READERS)

    async def write(self, steps: list[Step]) -> None:
        await self._writer.run(lambda connect: _explaining(lambda: _write(connect(), steps)))

    async def read_each(self, sql: str, keys: Sequence[Row]) -> list[list[Row]]:
        if not keys:
            return []
        return await self._readers.run(lambda connect: _read(connect, sql, keys))

    async def read(self, sql: str, parameters: Row = (), *, inline: bool = False) -> list[Row]:
        return (await self.read_each(sql, (parameters,)))[0]

    async def shrink(self) -> int:
        return 0  # its own autovacuum makes room for new rows

    async def size(self) -> int:
        return (await self.read("SELECT pg_database_size(current_database())"))[0][0]

    async def close(self) -> None:
        await self._readers.close()
        await self._writer.close()
        for connection in self._first:
            connection.close()

    def _for_writing(self) -> Connection:
        return self._first.pop() if self._first else _connect_for_writing(self._url)


def open_postgres(url: str) -> PostgresDriver:
    """Upgrades the schema first, under the lock."""
    url = url.replace("postgresql+psycopg://", "postgresql://", 1)
    try:
        open_locked(url).close()
        return PostgresDriver(url)
    except StoreError as error:
        raise Misconfigured(f"[store] url: {error.message}") from error


def open_locked(url: str) -> Connection:
    """A connection that holds the lock. The schema is upgraded first."""
    connection = _connect_for_writing(url)
    try:
        _explaining(lambda: _upgrade(connection))
    except BaseException:
        connection.close()
        raise
    return connection


def connect(url: str) -> Connection:
    def open_connection() -> Connection:
        connection = psycopg.connect(
            url,
            autocommit=True,
            connect_timeout=ANSWER_SECONDS,
            tcp_user_timeout=ANSWER_SECONDS * 1000,
            client_encoding="UTF8",  # whatever PGCLIENTENCODING says
        )
        _set(connection, "statement_timeout", f"{ANSWER_SECONDS}s")
        return connection

    return _explaining(open_connection)


def _connect_for_writing(url: str) -> Connection:
    connection = connect(url)
    try:
        _set(connection, "synchronous_commit", "on")
        _set(connection, "lock_timeout", f"{LOCK_SECONDS}s")
        connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
        _set(connection, "lock_timeout", "0")
    except errors.LockNotAvailable:
        connection.close()
        raise StoreError(
            "another Turnout service uses this database: stop it first, or name another one"
        ) from None
    return connection


def _set(connection: Connection, name: str, value: str) -> None:
    connection.execute("SELECT set_config(%s, %s, false)", (name, value))


def _upgrade(connection: Connection) -> None:
    postgres_check.check(connection)
    version = _version(connection)
    if version is None:
        postgres_check.check_may_create(connection)
        from sqlalchemy.dialects import postgresql

        from turnout.store.schema import ddl

        connection.execute(cast(LiteralString, ddl(postgresql.dialect())))
    elif migrate.needs_upgrade(version, connection.info.dbname):
        postgres_check.check_may_create(connection)
        _set(connection, "statement_timeout", "0")
        migrate.upgrade_postgres(connection)
    postgres_check.check_rights(connection)


def _version(connection: Connection) -> str | None:
    """None: the database has no table of Turnout's yet."""

    def exists(table: str) -> bool:
        row = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (table,)).fetchone()
        return bool(row and row[0])

    if not exists("alembic_version"):
        if exists("jobs"):
            raise StoreError("its table `jobs` is not Turnout's: name another database")
        return None
    row = connection.execute(migrate.VERSION).fetchone()
    return row[0] if row else ""


def _write(connection: Connection, steps: list[Step]) -> None:
    with connection.transaction(), connection.cursor() as cursor:
        for step in steps:
            cursor.executemany(cast(LiteralString, step.sql), step.rows)
            if step.changes and cursor.rowcount != len(step.rows):
                raise StoreError(f"only {cursor.rowcount} of {len(step.rows)} rows exist: {step.sql}")


def _read(connect: Connect[Connection], sql: str, keys: Sequence[Row]) -> list[list[Row]]:
    """Retries once after a broken connection: the server may have restarted."""
    try:
        return _explaining(lambda: _each(connect(), sql, keys))
    except ConnectionBroken:
        return _explaining(lambda: _each(connect(), sql, keys))


def _each(connection: Connection, sql: str, keys: Sequence[Row]) -> list[list[Row]]:
    statement = cast(LiteralString, sql)
    with connection.cursor() as cursor:
        if len(keys) == 1:
            return [cursor.execute(statement, keys[0]).fetchall()]
        cursor.executemany(statement, keys, returning=True)
        found = [cursor.fetchall()]
        while cursor.nextset():
            found.append(cursor.fetchall())
        return found


def _usable(connection: Connection) -> bool:
    return not connection.closed


def _explaining(work: Callable[[], Result]) -> Result:
    try:
        return work()
    except (errors.QueryCanceled, errors.ConnectionTimeout) as error:
        raise Unanswered(f"the database did not answer within {ANSWER_SECONDS} s") from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        raise ConnectionBroken(f"the database cannot be reached: {_one_line(error)}") from error
    except psycopg.Error as error:
        raise StoreError(f"the database answers: {_one_line(error)}") from error
    except UnicodeError as error:
        raise StoreError(f"a value cannot be stored: {error}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
