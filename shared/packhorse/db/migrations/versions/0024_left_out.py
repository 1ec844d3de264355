"""Whether a package was skipped because it is not for the subscriber."""

from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    for table in ("status", "outcome"):
        op.execute(
            f"ALTER TABLE bookkeeping.{table} ADD COLUMN left_out boolean NOT NULL DEFAULT false"
        )
