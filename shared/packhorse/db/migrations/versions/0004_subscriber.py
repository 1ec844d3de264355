"""Tables of the subscriber.

How far each subscription is, who may import, and what is still to be told.

They belong to the database and not to a subscriber's name, so that a copy goes on by itself (R12);
what is said under a name carries that name.
"""

from alembic import op

revision = "0004"
down_revision = "0003"

STATEMENTS = (
    """
    CREATE TABLE bookkeeping.lease (
        singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
        holder text NOT NULL,
        epoch bigint NOT NULL,
        expires_at timestamptz NOT NULL
    ) WITH (fillfactor = 50)
    """,
    """
    CREATE TABLE bookkeeping.position (
        publisher_agent text COLLATE "C" PRIMARY KEY,
        journal_id text NOT NULL,
        epoch bigint NOT NULL,
        log_offset bigint NOT NULL,
        package_id text NOT NULL,
        moved_at timestamptz NOT NULL DEFAULT now()
    ) WITH (fillfactor = 50)
    """,
    """
    CREATE TABLE bookkeeping.attempt (
        publisher_agent text COLLATE "C" PRIMARY KEY,
        log_offset bigint NOT NULL,
        package_id text NOT NULL,
        attempts integer NOT NULL,
        last_error text NOT NULL,
        blocked_since_ms bigint NOT NULL,
        alone_until bigint NOT NULL
    ) WITH (fillfactor = 50)
    """,
    """
    CREATE TABLE bookkeeping.applied_sequence (
        publisher_agent text COLLATE "C" NOT NULL,
        producer text COLLATE "C" NOT NULL,
        epoch bigint NOT NULL,
        sequence bigint NOT NULL,
        PRIMARY KEY (publisher_agent, producer)
    ) WITH (fillfactor = 50)
    """,
    """
    CREATE TABLE bookkeeping.status (
        publisher_agent text COLLATE "C" NOT NULL,
        log_offset bigint NOT NULL,
        subscriber text NOT NULL,
        status text NOT NULL CHECK (status IN ('IMPORTED', 'REMOVED', 'REMOVED_FAILED')),
        package_id text NOT NULL,
        attempts integer NOT NULL,
        reason text NOT NULL,
        command_id text NOT NULL,
        decided_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        PRIMARY KEY (publisher_agent, log_offset)
    )
    """,
    """
    CREATE TABLE bookkeeping.status_mark (
        publisher_agent text COLLATE "C" PRIMARY KEY,
        log_offset bigint NOT NULL
    ) WITH (fillfactor = 50)
    """,
    """
    CREATE TABLE bookkeeping.clear_command (
        subscriber text NOT NULL,
        command_id text NOT NULL,
        publisher_agent text NOT NULL,
        journal_id text NOT NULL,
        up_to bigint NOT NULL,
        received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        PRIMARY KEY (subscriber, command_id)
    )
    """,
    """
    CREATE TABLE bookkeeping.command_position (
        subscriber text PRIMARY KEY,
        journal_id text NOT NULL,
        log_offset bigint NOT NULL
    )
    """,
    "GRANT SELECT, INSERT, UPDATE, DELETE ON bookkeeping.lease, bookkeeping.position, "
    "bookkeeping.attempt, bookkeeping.applied_sequence, bookkeeping.status, "
    "bookkeeping.status_mark, bookkeeping.clear_command, bookkeeping.command_position "
    "TO packhorse_bookkeeper",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
