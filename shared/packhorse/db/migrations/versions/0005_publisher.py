"""Tables of the publisher: the append lock, the outbox, idempotency keys, stored packages."""

from alembic import op

revision = "0005"
down_revision = "0004"

STATEMENTS = (
    """
    CREATE TABLE bookkeeping.slot (
        singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
        producer uuid NOT NULL DEFAULT gen_random_uuid(),
        epoch bigint NOT NULL DEFAULT 1,
        sequence bigint NOT NULL DEFAULT 0,
        settled_offset bigint NOT NULL DEFAULT -1,
        journal_id text NOT NULL DEFAULT ''
    )
    """,
    """
    CREATE TABLE bookkeeping.outbox (
        epoch bigint NOT NULL,
        sequence bigint NOT NULL,
        snapshot bigint NOT NULL,
        package_id text NOT NULL UNIQUE,
        entry bytea NOT NULL,
        value bytea,
        traceparent text,
        accepted_at timestamptz NOT NULL DEFAULT now(),
        log_offset bigint,
        PRIMARY KEY (epoch, sequence),
        CHECK (log_offset IS NOT NULL OR value IS NOT NULL)
    ) WITH (fillfactor = 70)
    """,
    # A body is compressed already: compressing it again costs processor time for nothing.
    "ALTER TABLE bookkeeping.outbox ALTER COLUMN value SET STORAGE EXTERNAL",
    """
    CREATE INDEX outbox_unsettled ON bookkeeping.outbox (epoch, sequence)
        WHERE log_offset IS NULL
    """,
    """
    CREATE TABLE bookkeeping.idempotency_key (
        agent text NOT NULL,
        caller text NOT NULL,
        key text NOT NULL,
        fingerprint bytea NOT NULL,
        package_id text NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (agent, caller, key)
    )
    """,
    "CREATE INDEX idempotency_key_age ON bookkeeping.idempotency_key (created_at)",
    """
    CREATE TABLE bookkeeping.stored_package (
        key text PRIMARY KEY,
        package_id text NOT NULL,
        length bigint NOT NULL,
        sha256 text NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now(),
        log_offset bigint
    )
    """,
    "CREATE INDEX stored_package_offset ON bookkeeping.stored_package (log_offset)",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON bookkeeping.slot, bookkeeping.outbox, "
    "bookkeeping.idempotency_key, bookkeeping.stored_package TO packhorse_bookkeeper",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
