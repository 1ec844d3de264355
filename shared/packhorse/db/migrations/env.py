"""Alembic's entry: migrates the connection that `packhorse.db.migrate` hands over."""

from alembic import context

from packhorse.db.metadata import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
context.run_migrations()
