"""What became of a package may be that it repeated another one's number: DUPLICATE."""

from alembic import op

revision = "0018"
down_revision = "0017"

_CHECK = (
    "ALTER TABLE bookkeeping.{table} DROP CONSTRAINT {table}_status_check, "
    "ADD CONSTRAINT {table}_status_check CHECK (status IN "
    "('IMPORTED', 'REMOVED', 'REMOVED_FAILED', 'SKIPPED', 'DUPLICATE'))"
)


def upgrade() -> None:
    """Allow it."""
    for table in ("status", "outcome"):
        op.execute(_CHECK.format(table=table))
