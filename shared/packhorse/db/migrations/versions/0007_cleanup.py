"""Tables of the cleanup: whose turn it is, its runs and what they removed, orphans seen."""

from alembic import op

revision = "0007"
down_revision = "0006"

STATEMENTS = (
    """
    CREATE TABLE bookkeeping.cleanup (
        singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
        epoch bigint NOT NULL DEFAULT 0,
        journal_id text NOT NULL DEFAULT ''
    )
    """,
    "INSERT INTO bookkeeping.cleanup DEFAULT VALUES",
    """
    CREATE TABLE bookkeeping.cleanup_run (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        epoch bigint,
        origin text NOT NULL,
        dry_run boolean NOT NULL,
        state text NOT NULL,
        requested_at timestamptz NOT NULL DEFAULT now(),
        started_at timestamptz,
        ended_at timestamptz,
        journal_id text,
        oldest_offset bigint,
        next_offset bigint,
        kept jsonb NOT NULL DEFAULT '{}',
        error text
    )
    """,
    """
    CREATE UNIQUE INDEX cleanup_run_requested ON bookkeeping.cleanup_run (state)
        WHERE state = 'REQUESTED'
    """,
    """
    CREATE TABLE bookkeeping.cleanup_removal (
        run bigint NOT NULL REFERENCES bookkeeping.cleanup_run ON DELETE CASCADE,
        key text NOT NULL,
        reason text NOT NULL,
        length bigint NOT NULL,
        log_offset bigint,
        removed_at timestamptz,
        PRIMARY KEY (run, key)
    )
    """,
    """
    CREATE TABLE bookkeeping.orphan (
        key text PRIMARY KEY,
        first_seen timestamptz NOT NULL DEFAULT now(),
        run bigint NOT NULL
    )
    """,
    "GRANT SELECT, INSERT, UPDATE, DELETE ON bookkeeping.cleanup, bookkeeping.cleanup_run, "
    "bookkeeping.cleanup_removal, bookkeeping.orphan TO packhorse_bookkeeper",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
