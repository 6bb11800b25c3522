"""Checks that a PostgreSQL database can be used. Errors say what to do."""

import psycopg
from psycopg import sql

from turnout.store.driver import StoreError
from turnout.store.rows import Row

OLDEST = 12
"""The oldest server that the statements are tested and written for."""

_RIGHTS = "SELECT, INSERT, UPDATE, DELETE"

Connection = psycopg.Connection[Row]


def check(connection: Connection) -> None:
    """Raises StoreError."""
    _check_version(connection)
    _check_encoding(connection)
    _check_writable(connection)


def check_may_create(connection: Connection) -> None:
    """Call it before tables are created or changed. Raises StoreError."""
    schema = _value(connection, "SELECT current_schema()")
    user, database = connection.info.user, connection.info.dbname
    if schema is None:
        raise StoreError(
            f"no schema of the search_path of {user} is in the database {database}: "
            f"run ALTER ROLE {_name(connection, user)} SET search_path = public"
        )
    if not _value(connection, "SELECT has_schema_privilege(%s, 'CREATE')", schema):
        raise StoreError(
            f"the user {user} may not create tables in the database {database}: as its owner run "
            f"GRANT CREATE ON SCHEMA {_name(connection, schema)} TO {_name(connection, user)}"
        )


def check_rights(connection: Connection) -> None:
    """Checks the rights to existing tables. Raises StoreError."""
    refused = _value(
        connection,
        "SELECT string_agg(quote_ident(tablename), ', ' ORDER BY tablename) FROM pg_tables"
        " WHERE schemaname = current_schema() AND NOT (SELECT bool_and(has_table_privilege("
        "quote_ident(schemaname) || '.' || quote_ident(tablename), privilege)) FROM unnest(%s::text[]) AS privilege)",
        _RIGHTS.split(", "),
    )
    if refused:
        user = connection.info.user
        raise StoreError(
            f"the user {user} may not read and write the tables {refused}: as their owner run "
            f"GRANT {_RIGHTS} ON ALL TABLES IN SCHEMA public TO {_name(connection, user)}"
        )


def _check_version(connection: Connection) -> None:
    found = connection.info.server_version
    if found // 10_000 < OLDEST:
        raise StoreError(
            f"the server is PostgreSQL {found // 10_000}.{found % 10_000}: Turnout needs {OLDEST} or newer"
        )


def _check_encoding(connection: Connection) -> None:
    """SQL_ASCII accepts bytes that are not text; other encodings lack most letters."""
    encoding, database = connection.info.parameter_status("server_encoding"), connection.info.dbname
    if encoding != "UTF8":
        raise StoreError(
            f"the database {database} has the encoding {encoding}, which cannot hold all text: "
            "create one with createdb -E UTF8 -T template0 --locale=C.UTF-8 <name> and name it in [store] url"
        )


def _check_writable(connection: Connection) -> None:
    if _value(connection, "SELECT pg_is_in_recovery()"):
        raise StoreError("the server is a standby, which is read-only: name the primary server")
    if _value(connection, "SHOW transaction_read_only") == "on":
        raise StoreError(
            "the database is set to read-only: run ALTER DATABASE "
            f"{_name(connection, connection.info.dbname)} SET default_transaction_read_only = off"
        )


def _value(connection: Connection, query: str, *values: object) -> object:
    row = connection.execute(query.encode(), values or None).fetchone()
    return row[0] if row else None


def _name(connection: Connection, text: str | object) -> str:
    return sql.Identifier(str(text)).as_string(connection)
