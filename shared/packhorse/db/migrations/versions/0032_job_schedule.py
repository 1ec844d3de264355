"""Unfinished jobs are found by their schedule."""

from alembic import op

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    op.execute(
        """
        CREATE INDEX job_schedule ON jobs.job (schedule) WHERE schedule IS NOT NULL
        """
    )
