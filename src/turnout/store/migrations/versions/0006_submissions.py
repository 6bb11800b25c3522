"""What engines with a queue of their own call the attempts that were submitted to them.

Revision ID: 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_Text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "submissions",
        sa.Column("job", sa.BigInteger, primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True),
        sa.Column("engine", _Text, nullable=False),
        sa.Column("engine_id", _Text, nullable=False),
        sqlite_with_rowid=False,
    )
