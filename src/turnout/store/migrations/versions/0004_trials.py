"""The trials of searches, and what they measured.

Revision ID: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_Text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "trials",
        sa.Column("job", sa.BigInteger, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("id", _Text, nullable=False),
        sa.Column("algorithm", sa.Integer, nullable=False),
        sa.Column("child", sa.BigInteger, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("state", sa.SmallInteger, nullable=False),
        sa.Column("started", sa.BigInteger),
        sa.Column("ended", sa.BigInteger),
        sa.Column("told", sa.LargeBinary, nullable=False),
        sa.Column("cursor", sa.LargeBinary),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "measurements",
        sa.Column("job", sa.BigInteger, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("step", sa.BigInteger, primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("told", sa.LargeBinary, nullable=False),
        sqlite_with_rowid=False,
    )
