"""Labels, past attempts and samples of jobs; assets; keys.

Revision ID: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "labels",
        sa.Column("job", sa.BigInteger, primary_key=True),
        sa.Column("key", _text, primary_key=True),
        sa.Column("value", _text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("labels_value", "labels", ["key", "value", "job"])
    _attempts()
    op.create_table(
        "assets",
        sa.Column("project", _text, primary_key=True),
        sa.Column("kind", _text, primary_key=True),
        sa.Column("id", _text, primary_key=True),
        sa.Column("scope", _text, nullable=False),
        sa.Column("name", _text, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("updated", sa.BigInteger, nullable=False),
        sa.Column("document", sa.LargeBinary, nullable=False),
    )
    op.create_index("assets_name", "assets", ["project", "kind", "scope", "name"], unique=True)
    op.create_table(
        "keys",
        sa.Column("id", _text, primary_key=True),
        sa.Column("secret", _text, nullable=False),
        sa.Column("project", _text, nullable=False),
        sa.Column("label", _text, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
    )


def _attempts() -> None:
    op.create_table(
        "past",
        sa.Column("job", sa.BigInteger, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("started", sa.BigInteger),
        sa.Column("ended", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.SmallInteger, nullable=False),
        sa.Column("message", _text, nullable=False),
        sa.Column("replica", _text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "samples",
        sa.Column("job", sa.BigInteger, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("role", _text, nullable=False),
        sa.Column("index", sa.Integer, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("cpu", sa.Float),
        sa.Column("memory", sa.Float),
        sa.Column("gpu", sa.Float),
        sa.Column("gpu_memory", sa.Float),
        sa.PrimaryKeyConstraint("job", "role", "index", "attempt", "at"),
        sqlite_with_rowid=False,
    )
