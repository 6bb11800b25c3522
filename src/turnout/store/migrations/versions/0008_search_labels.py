"""Searches are found by a label. Those that were created before have none.

Revision ID: 0008
"""

from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.execute(
        "INSERT INTO labels (job, key, value) SELECT DISTINCT job, 'search', '' FROM trials"
        " WHERE job NOT IN (SELECT job FROM labels WHERE key = 'search')"
    )
