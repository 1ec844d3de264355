"""Tables of the subscriber.

What operators want of its subscriptions, what it tells of commands, audit.
"""

from alembic import op

revision = "0008"
down_revision = "0007"

STATEMENTS = (
    "ALTER TABLE bookkeeping.position ADD COLUMN started_offset bigint NOT NULL DEFAULT -1",
    "ALTER TABLE bookkeeping.status ADD COLUMN journal_id text NOT NULL DEFAULT '', "
    "DROP CONSTRAINT status_status_check, ADD CONSTRAINT status_status_check "
    "CHECK (status IN ('IMPORTED', 'REMOVED', 'REMOVED_FAILED', 'SKIPPED'))",
    "ALTER TABLE bookkeeping.applied_sequence ADD COLUMN log_offset bigint",
    """
    CREATE TABLE bookkeeping.lane_control (
        publisher_agent text COLLATE "C" PRIMARY KEY,
        desired text NOT NULL CHECK (desired IN ('RUN', 'PAUSE', 'STOP')),
        command_id text NOT NULL,
        changed_at timestamptz NOT NULL DEFAULT clock_timestamp()
    )
    """,
    """
    CREATE TABLE bookkeeping.command_status (
        command_id text NOT NULL,
        state text NOT NULL CHECK (state IN ('SEEN', 'APPLIED', 'REJECTED')),
        subscriber text NOT NULL,
        publisher_agent text NOT NULL,
        removed bigint NOT NULL DEFAULT 0,
        reason text NOT NULL DEFAULT '',
        decided_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        sent boolean NOT NULL DEFAULT false,
        PRIMARY KEY (command_id, state)
    )
    """,
    # Clears that are under way count what they remove in such a row, and end with it.
    """
    INSERT INTO bookkeeping.command_status (command_id, state, subscriber, publisher_agent)
    SELECT command_id, 'SEEN', subscriber, publisher_agent FROM bookkeeping.clear_command
    ON CONFLICT DO NOTHING
    """,
    """
    CREATE TABLE bookkeeping.audit (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        happened_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        subscriber text NOT NULL,
        publisher_agent text NOT NULL,
        command_id text NOT NULL,
        issued_by text NOT NULL,
        action text NOT NULL,
        detail jsonb NOT NULL DEFAULT '{}'
    )
    """,
    """
    CREATE TABLE bookkeeping.applied_package (
        publisher_agent text COLLATE "C" NOT NULL,
        package_id text COLLATE "C" NOT NULL,
        applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        PRIMARY KEY (publisher_agent, package_id)
    )
    """,
    "CREATE INDEX applied_package_age ON bookkeeping.applied_package (applied_at)",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON bookkeeping.lane_control, "
    "bookkeeping.command_status, bookkeeping.audit, bookkeeping.applied_package "
    "TO packhorse_bookkeeper",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
