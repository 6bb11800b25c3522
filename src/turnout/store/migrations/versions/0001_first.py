"""Jobs, documents, replicas, events.

Revision ID: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_id = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    _jobs()
    op.create_table(
        "documents",
        sa.Column("job", _id, primary_key=True, autoincrement=False),
        sa.Column("document", sa.LargeBinary, nullable=False),
        sa.Column("spec", sa.LargeBinary, nullable=False),
    )
    _replicas()
    op.create_table(
        "events",
        sa.Column("number", _id, primary_key=True),
        sa.Column("job", sa.BigInteger, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.SmallInteger, nullable=False),
        sa.Column("message", _text, nullable=False),
    )
    op.create_index("events_job", "events", ["job"])


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", _id, primary_key=True, autoincrement=False),
        sa.Column("project", _text, nullable=False),
        sa.Column("dialect", _text, nullable=False),
        sa.Column("scope", _text, nullable=False),
        sa.Column("handle", _text, nullable=False),
        sa.Column("name", _text, nullable=False),
        sa.Column("cluster", _text, nullable=False),
        sa.Column("state", sa.SmallInteger, nullable=False),
        sa.Column("priority", sa.BigInteger, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("updated", sa.BigInteger, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("started", sa.BigInteger),
        sa.Column("ended", sa.BigInteger),
        sa.Column("deleted", sa.BigInteger),
        sa.Column("reason", sa.SmallInteger),
        sa.Column("message", _text, nullable=False),
    )
    _partial_index("jobs_live", ["id"], "state < 10")
    _partial_index(
        "jobs_handle", ["project", "scope", "handle"], "deleted IS NULL AND handle <> ''", unique=True
    )
    _partial_index("jobs_list", ["project", "scope", "id"], "deleted IS NULL")


def _partial_index(name: str, columns: list[str], where: str, unique: bool = False) -> None:
    condition = sa.text(where)
    op.create_index(name, "jobs", columns, unique=unique, sqlite_where=condition, postgresql_where=condition)


def _replicas() -> None:
    op.create_table(
        "replicas",
        sa.Column("job", sa.BigInteger, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("role", _text, primary_key=True),
        sa.Column("index", sa.Integer, primary_key=True),
        sa.Column("state", sa.SmallInteger, nullable=False),
        sa.Column("node", _text, nullable=False),
        sa.Column("address", _text, nullable=False),
        sa.Column("pid", sa.BigInteger),
        sa.Column("gpus", _text, nullable=False),
        sa.Column("started", sa.BigInteger),
        sa.Column("ended", sa.BigInteger),
        sa.Column("exit_code", sa.BigInteger),
        sa.Column("signal", sa.SmallInteger),
        sa.Column("message", _text, nullable=False),
        sa.Column("rank", sa.Integer, nullable=False),
        sqlite_with_rowid=False,
    )
