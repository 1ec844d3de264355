"""Tables of the topology: its lease store, its voting store, connectors between clusters."""

from alembic import op

revision = "0008"
down_revision = "0007"

STATEMENTS = (
    "CREATE SCHEMA topology",
    "GRANT USAGE ON SCHEMA topology TO packhorse_bookkeeper",
    # The row comes with the first joining, so that a database made from a template has an own id.
    """
    CREATE TABLE topology.cluster (
        singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
        id text NOT NULL,
        seq bigint NOT NULL DEFAULT 0,
        last_number integer NOT NULL DEFAULT 0
    )
    """,
    # Half of each page is left free and no index has a column that a renewal changes: a renewal
    # stays in its page, and the next reader clears away what it left.
    """
    CREATE TABLE topology.instance (
        id text COLLATE "C" PRIMARY KEY CHECK (octet_length(id) BETWEEN 1 AND 200),
        runtime_id text NOT NULL CHECK (octet_length(runtime_id) BETWEEN 1 AND 200),
        number integer NOT NULL UNIQUE,
        joined bigint NOT NULL,
        state text NOT NULL CHECK (state IN ('ACTIVE', 'DEACTIVATING', 'INACTIVE')),
        lease_end timestamptz NOT NULL,
        lease_s double precision NOT NULL CHECK (lease_s BETWEEN 0.001 AND 86400),
        acknowledged bigint NOT NULL DEFAULT 0,
        edition bigint NOT NULL DEFAULT 0,
        properties jsonb NOT NULL DEFAULT '{}' CHECK (pg_column_size(properties) <= 524288),
        changed_at timestamptz NOT NULL DEFAULT clock_timestamp()
    ) WITH (fillfactor = 50)
    """,
    """
    CREATE TABLE topology.duty (
        name text COLLATE "C" PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 200),
        holder text NOT NULL DEFAULT '',
        runtime_id text NOT NULL DEFAULT '',
        epoch bigint NOT NULL DEFAULT 0,
        taken_at timestamptz NOT NULL DEFAULT clock_timestamp()
    )
    """,
    "GRANT SELECT, INSERT, UPDATE, DELETE ON topology.cluster, topology.instance, topology.duty "
    "TO packhorse_bookkeeper",
    """
    CREATE TABLE topology.last_start (
        singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
        started_ms bigint NOT NULL
    )
    """,
    # Half of each page is left free, and no index has a column that a heartbeat changes.
    """
    CREATE TABLE topology.heartbeat (
        instance_id text COLLATE "C" PRIMARY KEY
            CHECK (octet_length(instance_id) BETWEEN 1 AND 200),
        runtime_id text NOT NULL CHECK (octet_length(runtime_id) BETWEEN 1 AND 200),
        prefix text NOT NULL CHECK (octet_length(prefix) <= 200),
        started_ms bigint NOT NULL CHECK (started_ms >= 0),
        count bigint NOT NULL,
        acknowledged text NOT NULL CHECK (octet_length(acknowledged) <= 200),
        properties jsonb NOT NULL CHECK (pg_column_size(properties) <= 524288),
        beaten_at timestamptz NOT NULL DEFAULT clock_timestamp()
    ) WITH (fillfactor = 50)
    """,
    """
    CREATE TABLE topology.voting (
        id text COLLATE "C" PRIMARY KEY CHECK (octet_length(id) BETWEEN 1 AND 200),
        replaces text NOT NULL,
        initiator text NOT NULL,
        members jsonb NOT NULL,
        proposed_at timestamptz NOT NULL DEFAULT clock_timestamp()
    )
    """,
    """
    CREATE TABLE topology.vote (
        voting_id text COLLATE "C" REFERENCES topology.voting ON DELETE CASCADE,
        instance_id text COLLATE "C",
        yes boolean NOT NULL,
        voted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        PRIMARY KEY (voting_id, instance_id)
    )
    """,
    """
    CREATE TABLE topology.established_view (
        singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
        id text NOT NULL,
        replaces text NOT NULL,
        initiator text NOT NULL,
        members jsonb NOT NULL,
        promoted_at timestamptz NOT NULL DEFAULT clock_timestamp()
    )
    """,
    """
    CREATE TABLE topology.previous_view (
        singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
        id text NOT NULL,
        replaces text NOT NULL,
        initiator text NOT NULL,
        members jsonb NOT NULL,
        promoted_at timestamptz NOT NULL
    )
    """,
    "GRANT SELECT, INSERT, UPDATE, DELETE ON topology.last_start, topology.heartbeat, "
    "topology.voting, topology.vote, topology.established_view, topology.previous_view "
    "TO packhorse_bookkeeper",
    """
    CREATE TABLE topology.announcement (
        owner text COLLATE "C" NOT NULL,
        holder text COLLATE "C" NOT NULL,
        address text NOT NULL,
        content text NOT NULL,
        digest text NOT NULL,
        backoff_interval_s double precision NOT NULL,
        received_at timestamptz NOT NULL,
        changed_at timestamptz NOT NULL,
        expires_at timestamptz NOT NULL,
        PRIMARY KEY (owner, holder)
    )
    """,
    """
    CREATE TABLE topology.nonce (
        nonce text COLLATE "C" PRIMARY KEY,
        expires_at timestamptz NOT NULL
    )
    """,
    "CREATE INDEX nonce_expiry ON topology.nonce (expires_at)",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON topology.announcement, topology.nonce "
    "TO packhorse_bookkeeper",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
