"""Alembic's entry: migrates the connection that `packhorse.db.migrate` hands over."""

from alembic import context

from packhorse.db.metadata import METADATA
from packhorse.db.version import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=VERSION_TABLE,
)
context.run_migrations()
