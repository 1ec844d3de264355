"""Samples of queues say how far subscribers were, and when; acts are looked for by their caller."""

from alembic import op

revision = "0031"
down_revision = "0030"

STATEMENTS: tuple[str, ...] = (
    "CREATE INDEX audit_callers ON bookkeeping.audit (issued_by, happened_at, id)"
    " WHERE command_id = ''",
    """
    ALTER TABLE bookkeeping.queue_sample
        ADD COLUMN settled bigint[] NOT NULL DEFAULT '{}',
        ADD COLUMN started bigint[] NOT NULL DEFAULT '{}',
        ADD COLUMN taken_at timestamptz NOT NULL DEFAULT clock_timestamp()
    """,
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
