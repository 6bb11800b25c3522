"""Replicas that start again in their place; the exit code that decided a past attempt.

Revision ID: 0003
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    restarts = sa.Column("restarts", sa.Integer, nullable=False, server_default="0")
    code = sa.Column("code", sa.BigInteger)
    if op.get_context().dialect.name == "sqlite":
        # It would add a column behind the constraints, and the table's text would differ from a new database's.
        _again("replicas", *_replicas(), restarts)
        _again("past", *_past(), code)
    else:
        op.add_column("replicas", restarts)
        op.add_column("past", code)


def _again(table: str, *columns: "sa.Column[Any]") -> None:
    op.rename_table(table, "old")
    op.create_table(table, *columns, sqlite_with_rowid=False)
    names = ", ".join(f'"{column.name}"' for column in columns[:-1])
    op.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM old")
    op.drop_table("old")


def _replicas() -> "list[sa.Column[Any]]":
    return [
        sa.Column("job", sa.BigInteger, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("role", sa.Text, primary_key=True),
        sa.Column("index", sa.Integer, primary_key=True),
        sa.Column("state", sa.SmallInteger, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("pid", sa.BigInteger),
        sa.Column("gpus", sa.Text, nullable=False),
        sa.Column("started", sa.BigInteger),
        sa.Column("ended", sa.BigInteger),
        sa.Column("exit_code", sa.BigInteger),
        sa.Column("signal", sa.SmallInteger),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("rank", sa.Integer, nullable=False),
    ]


def _past() -> "list[sa.Column[Any]]":
    return [
        sa.Column("job", sa.BigInteger, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("started", sa.BigInteger),
        sa.Column("ended", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.SmallInteger, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("replica", sa.Text, nullable=False),
    ]
