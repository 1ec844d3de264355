"""Tables of the subscriber.

How far each subscription is, who may import, what operators want, and what is still to be told;
what the content began with, and which of it is taken.

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
        moved_at timestamptz NOT NULL DEFAULT now(),
        started_offset bigint NOT NULL DEFAULT -1
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
        log_offset bigint,
        PRIMARY KEY (publisher_agent, producer)
    ) WITH (fillfactor = 50)
    """,
    """
    CREATE TABLE bookkeeping.status (
        publisher_agent text COLLATE "C" NOT NULL,
        log_offset bigint NOT NULL,
        subscriber text NOT NULL,
        status text NOT NULL CHECK (
            status IN ('IMPORTED', 'REMOVED', 'REMOVED_FAILED', 'SKIPPED', 'DUPLICATE')),
        package_id text NOT NULL,
        attempts integer NOT NULL,
        reason text NOT NULL,
        command_id text NOT NULL,
        decided_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        journal_id text NOT NULL,
        left_out boolean NOT NULL DEFAULT false,
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
    """
    CREATE TABLE bookkeeping.subscription_control (
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
    # Acts without a command, such as writes of content and of jobs, by their time and their caller.
    "CREATE INDEX audit_acts ON bookkeeping.audit (happened_at, id) WHERE command_id = ''",
    "CREATE INDEX audit_callers ON bookkeeping.audit (issued_by, happened_at, id)"
    " WHERE command_id = ''",
    """
    CREATE TABLE bookkeeping.applied_package (
        publisher_agent text COLLATE "C" NOT NULL,
        package_id text COLLATE "C" NOT NULL,
        applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        PRIMARY KEY (publisher_agent, package_id)
    )
    """,
    "CREATE INDEX applied_package_age ON bookkeeping.applied_package (applied_at)",
    """
    CREATE TABLE bookkeeping.joined_snapshot (
        singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
        snapshot_id text NOT NULL,
        log_offset bigint NOT NULL,
        journal_id text NOT NULL,
        publisher_agents text[] NOT NULL,
        subscriber text NOT NULL,
        left_out text NOT NULL,
        joined_at timestamptz NOT NULL DEFAULT clock_timestamp()
    )
    """,
    """
    CREATE TABLE bookkeeping.content_filter (
        singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
        include text[] NOT NULL,
        exclude text[] NOT NULL,
        since timestamptz NOT NULL DEFAULT clock_timestamp(),
        map_paths jsonb NOT NULL DEFAULT '{}',
        exclude_properties text[] NOT NULL DEFAULT '{}'
    )
    """,
    "GRANT SELECT, INSERT, UPDATE, DELETE ON bookkeeping.lease, bookkeeping.position, "
    "bookkeeping.attempt, bookkeeping.applied_sequence, bookkeeping.status, "
    "bookkeeping.status_mark, bookkeeping.clear_command, bookkeeping.command_position, "
    "bookkeeping.subscription_control, bookkeeping.command_status, bookkeeping.audit, "
    "bookkeeping.applied_package, bookkeeping.joined_snapshot, bookkeeping.content_filter "
    "TO packhorse_bookkeeper",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
