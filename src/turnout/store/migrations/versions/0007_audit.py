"""The key that made a job; the audit trail; messages to webhooks.

Revision ID: 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_Text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_INDEXES = {
    "jobs_deleted": (("deleted", "id"), "deleted IS NOT NULL", False),
    "jobs_live": (("id",), "state < 10", False),
    "jobs_handle": (("project", "scope", "handle"), "deleted IS NULL AND handle <> ''", True),
    "jobs_list": (("project", "scope", "id"), "deleted IS NULL", False),
}


def upgrade() -> None:
    owner = sa.Column("owner", _Text, nullable=False, server_default="")
    if op.get_context().dialect.name == "sqlite":
        # It would add the column behind the constraints, and the table's text would differ from a new database's.
        _make_jobs_again(owner)
    else:
        op.add_column("jobs", owner)
    op.create_table(
        "audit",
        sa.Column("number", _Id, primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("who", _Text, nullable=False),
        sa.Column("project", _Text, nullable=False),
        sa.Column("peer", _Text, nullable=False),
        sa.Column("api", _Text, nullable=False),
        sa.Column("call", _Text, nullable=False),
        sa.Column("job", sa.BigInteger, nullable=False),
        sa.Column("subject", _Text, nullable=False),
        sa.Column("status", sa.SmallInteger, nullable=False),
        sa.Column("code", _Text, nullable=False),
    )
    about_job = sa.text("job > 0")
    op.create_index("audit_job", "audit", ["job"], sqlite_where=about_job, postgresql_where=about_job)
    op.create_index("audit_project", "audit", ["project", "number"])
    op.create_table(
        "deliveries",
        sa.Column("number", _Id, primary_key=True),
        sa.Column("id", _Text, nullable=False),
        sa.Column("hook", _Text, nullable=False),
        sa.Column("project", _Text, nullable=False),
        sa.Column("job", sa.BigInteger, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("next_at", sa.BigInteger, nullable=False),
        sa.Column("error", _Text, nullable=False),
        sa.Column("given_up", sa.BigInteger),
    )
    waiting = sa.text("given_up IS NULL")
    op.create_index(
        "deliveries_due",
        "deliveries",
        ["hook", "next_at", "number"],
        sqlite_where=waiting,
        postgresql_where=waiting,
    )


def _make_jobs_again(owner: "sa.Column[str]") -> None:
    columns = [
        sa.Column("id", _Id, primary_key=True, autoincrement=False),
        *(sa.Column(name, _Text, nullable=False) for name in ("project", "dialect", "scope", "handle")),
        *(sa.Column(name, _Text, nullable=False) for name in ("name", "cluster")),
        sa.Column("state", sa.SmallInteger, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("priority", "created", "updated")),
        sa.Column("attempt", sa.Integer, nullable=False),
        *(sa.Column(name, sa.BigInteger) for name in ("started", "ended", "deleted")),
        sa.Column("reason", sa.SmallInteger),
        sa.Column("message", _Text, nullable=False),
    ]
    names = ", ".join(column.name for column in columns)
    op.rename_table("jobs", "old")
    op.create_table("jobs", *columns, owner)
    op.execute(f"INSERT INTO jobs ({names}) SELECT {names} FROM old")
    op.drop_table("old")
    for name, (on, where, unique) in _INDEXES.items():
        op.create_index(name, "jobs", list(on), unique=unique, sqlite_where=sa.text(where))
