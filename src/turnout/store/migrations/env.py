"""Alembic's entry point. The connection comes from `turnout.store.migrate`."""

from alembic import context

from turnout.store.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
