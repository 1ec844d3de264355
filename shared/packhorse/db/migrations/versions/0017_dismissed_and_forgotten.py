"""Tables of the publisher: entries of error queues that were dismissed, subscribers forgotten."""

from alembic import op

revision = "0017"
down_revision = "0016"

STATEMENTS: tuple[str, ...] = (
    "ALTER TABLE bookkeeping.outcome ADD COLUMN dismissed_at timestamptz",
    "ALTER TABLE bookkeeping.known_subscriber ADD COLUMN forgotten_at timestamptz",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
