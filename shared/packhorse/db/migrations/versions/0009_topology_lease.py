"""Tables of the topology's lease store."""

from alembic import op

revision = "0009"
down_revision = "0008"

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
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
