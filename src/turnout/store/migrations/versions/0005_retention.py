"""What finds the jobs whose time is over.

Revision ID: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_DELETED = sa.text("deleted IS NOT NULL")


def upgrade() -> None:
    op.create_index(
        "jobs_deleted", "jobs", ["deleted", "id"], sqlite_where=_DELETED, postgresql_where=_DELETED
    )
    op.create_index("trials_child", "trials", ["child"])
