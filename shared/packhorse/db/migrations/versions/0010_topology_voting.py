"""Tables of the topology's voting store."""

from alembic import op

revision = "0010"
down_revision = "0009"

STATEMENTS = (
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
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
