"""Creates the schema, and upgrades an old one. SQLAlchemy and Alembic are imported only if that is needed."""

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnout.errors import Misconfigured
from turnout.store import sqlite

if TYPE_CHECKING:
    import psycopg
    from sqlalchemy import Connection

HEAD = "0008"
"""The newest revision; they are numbered in order."""

VERSION = "SELECT version_num FROM alembic_version"
_SCRIPTS = Path(__file__).parent / "migrations"
_SCHEMA = Path(__file__).parent / "schema.sql"


def open_sqlite(database: Path) -> sqlite.SqliteDriver:
    connection = sqlite.prepare(database)
    try:
        version = _sqlite_version(connection, database)
        if version is None:
            connection.executescript(_SCHEMA.read_text())
        elif needs_upgrade(version, str(database)):
            upgrade_sqlite(connection)
        sqlite.make_shrinkable(connection, database)
    finally:
        connection.close()
    return sqlite.SqliteDriver(database)


def needs_upgrade(version: str, where: str) -> bool:
    """Raises Misconfigured if the database is not Turnout's, or if a newer Turnout created it."""
    if not version.isdecimal():
        raise Misconfigured(f"the database {where} is not Turnout's: name another one")
    if version > HEAD:
        raise Misconfigured(
            f"the database {where} has schema {version}, this Turnout knows {HEAD}: use the version that created it"
        )
    return version != HEAD


def upgrade(connection: "Connection", revision: str = HEAD) -> None:
    """Runs the migrations in the connection's transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def upgrade_sqlite(connection: sqlite3.Connection, revision: str = HEAD) -> None:
    _upgrade_within_one_transaction("sqlite://", connection, revision)


def upgrade_postgres(connection: "psycopg.Connection[Any]", revision: str = HEAD) -> None:
    _upgrade_within_one_transaction("postgresql+psycopg://", connection, revision)


def _upgrade_within_one_transaction(url: str, connection: object, revision: str) -> None:
    """The connection is in autocommit mode and stays open."""
    from sqlalchemy import create_engine
    from sqlalchemy.pool import StaticPool

    engine = create_engine(
        url, creator=lambda: connection, poolclass=StaticPool, isolation_level="AUTOCOMMIT"
    )
    with engine.connect() as open_connection:
        open_connection.exec_driver_sql("BEGIN")
        try:
            upgrade(open_connection, revision)
            open_connection.exec_driver_sql("COMMIT")
        except BaseException:
            open_connection.exec_driver_sql("ROLLBACK")
            raise


def _sqlite_version(connection: sqlite3.Connection, database: Path) -> str | None:
    try:
        if not connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone():
            return None
        return connection.execute(VERSION).fetchone()[0]
    except (sqlite3.Error, TypeError):
        raise Misconfigured(
            f"{database} is not a database of Turnout's: move it, or choose another directory"
        ) from None
