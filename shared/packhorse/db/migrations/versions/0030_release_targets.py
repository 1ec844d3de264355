"""Releases: the subscribers that one is for."""

from alembic import op

revision = "0030"
down_revision = "0029"

STATEMENTS: tuple[str, ...] = (
    "ALTER TABLE bookkeeping.release ADD COLUMN targets text[] NOT NULL DEFAULT '{}'",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
