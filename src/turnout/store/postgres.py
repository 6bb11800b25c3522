"""PostgreSQL through psycopg. Everything runs in threads; an advisory lock keeps a second service out."""

from collections.abc import Callable, Sequence
from typing import LiteralString, TypeVar, cast

import psycopg
from psycopg import errors

from turnout.errors import Misconfigured
from turnout.store import migrate
from turnout.store.driver import Connect, Crew, Step, StoreError, Unanswered
from turnout.store.rows import Row
from turnout.store.statements import POSTGRES

ANSWER_SECONDS = 10
LOCK_SECONDS = 3
"""A server takes a moment to see that a killed service is gone."""
READERS = 4
_LOCK = 0x7475726E6F7574

Result = TypeVar("Result")
Connection = psycopg.Connection[Row]


class Broken(StoreError):
    """The connection is gone; there will be another for the next call."""


class PostgresDriver:
    flavour = POSTGRES

    def __init__(self, url: str) -> None:
        self._url = url
        # Taken now, not with the first batch: a second service must not get as far as that.
        self._first = [_for_writing(url)]
        self._writer = Crew("store-writer", self._for_writing, _usable)
        self._readers = Crew("store-reader", lambda: connect(url), _usable, threads=READERS)

    async def write(self, steps: list[Step]) -> None:
        await self._writer.run(lambda connect: _explaining(lambda: _write(connect(), steps)))

    async def each(self, sql: str, keys: Sequence[Row]) -> list[list[Row]]:
        if not keys:
            return []
        return await self._readers.run(lambda connect: _read(connect, sql, keys))

    async def read(self, sql: str, parameters: Row = (), *, near: bool = False) -> list[Row]:
        return (await self.each(sql, (parameters,)))[0]

    async def close(self) -> None:
        await self._readers.close()
        await self._writer.close()
        for connection in self._first:
            connection.close()

    def _for_writing(self) -> Connection:
        return self._first.pop() if self._first else _for_writing(self._url)


def open_postgres(url: str) -> PostgresDriver:
    """Brings the schema up to date first, under the lock."""
    url = url.replace("postgresql+psycopg://", "postgresql://", 1)
    try:
        open_for_work(url).close()
        return PostgresDriver(url)
    except StoreError as error:
        raise Misconfigured(f"[store] url: {error.message}") from error


def open_for_work(url: str) -> Connection:
    """A connection that holds the lock, to a schema that is up to date."""
    connection = _for_writing(url)
    try:
        _explaining(lambda: _bring_up(connection))
    except BaseException:
        connection.close()
        raise
    return connection


def connect(url: str) -> Connection:
    def dial() -> Connection:
        connection = psycopg.connect(
            url, autocommit=True, connect_timeout=ANSWER_SECONDS, tcp_user_timeout=ANSWER_SECONDS * 1000
        )
        _set(connection, "statement_timeout", f"{ANSWER_SECONDS}s")
        return connection

    return _explaining(dial)


def _for_writing(url: str) -> Connection:
    connection = connect(url)
    try:
        _set(connection, "synchronous_commit", "on")
        _set(connection, "lock_timeout", f"{LOCK_SECONDS}s")
        connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
        _set(connection, "lock_timeout", "0")
    except errors.LockNotAvailable:
        connection.close()
        raise StoreError(
            "another Turnout works with this database: stop it first, or name another one"
        ) from None
    return connection


def _set(connection: Connection, name: str, value: str) -> None:
    connection.execute("SELECT set_config(%s, %s, false)", (name, value))


def _bring_up(connection: Connection) -> None:
    version = _version(connection)
    if version is None:
        from sqlalchemy.dialects import postgresql

        from turnout.store.schema import ddl

        connection.execute(cast(LiteralString, ddl(postgresql.dialect())))
    elif migrate.needs_work(version, connection.info.dbname):
        _set(connection, "statement_timeout", "0")
        migrate.upgrade_postgres(connection)


def _version(connection: Connection) -> str | None:
    """None: there is nothing of ours in the database yet."""

    def there(table: str) -> bool:
        row = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (table,)).fetchone()
        return bool(row and row[0])

    if not there("alembic_version"):
        if there("jobs"):
            raise StoreError("its table `jobs` is not Turnout's: name a database of its own")
        return None
    row = connection.execute(migrate.VERSION).fetchone()
    return row[0] if row else ""


def _write(connection: Connection, steps: list[Step]) -> None:
    with connection.transaction(), connection.cursor() as cursor:
        for step in steps:
            cursor.executemany(cast(LiteralString, step.sql), step.rows)
            if step.changes and cursor.rowcount != len(step.rows):
                raise StoreError(f"only {cursor.rowcount} of {len(step.rows)} rows are there: {step.sql}")


def _read(connect: Connect[Connection], sql: str, keys: Sequence[Row]) -> list[list[Row]]:
    """Once more if the connection turns out to be gone: the server may have been started anew."""
    try:
        return _explaining(lambda: _each(connect(), sql, keys))
    except Broken:
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
        raise Broken(f"the database cannot be reached: {_one_line(error)}") from error
    except psycopg.Error as error:
        raise StoreError(f"the database answers: {_one_line(error)}") from error
    except UnicodeError as error:
        raise StoreError(f"no database holds that: {error}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
