"""Table of the subscriber: the snapshot that its content began with."""

from alembic import op

revision = "0016"
down_revision = "0015"

STATEMENTS: tuple[str, ...] = (
    """
    CREATE TABLE bookkeeping.joined_snapshot (
        singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
        snapshot_id text NOT NULL,
        log_offset bigint NOT NULL,
        journal_id text NOT NULL,
        publisher_agents text[] NOT NULL,
        left_out text NOT NULL,
        joined_at timestamptz NOT NULL DEFAULT clock_timestamp()
    )
    """,
    "GRANT SELECT, INSERT, UPDATE, DELETE ON bookkeeping.joined_snapshot TO packhorse_bookkeeper",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
