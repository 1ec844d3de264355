"""Tables of the publisher: the append lock, the outbox, keys and producers, stored packages."""

from alembic import op

revision = "0005"
down_revision = "0004"

STATEMENTS = (
    # Offsets of an earlier log say nothing about the present one: each log is a generation.
    """
    CREATE TABLE bookkeeping.slot (
        singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
        producer uuid NOT NULL DEFAULT gen_random_uuid(),
        epoch bigint NOT NULL DEFAULT 1,
        sequence bigint NOT NULL DEFAULT 0,
        settled_offset bigint NOT NULL DEFAULT -1,
        journal_id text NOT NULL DEFAULT '',
        generation integer NOT NULL DEFAULT 1
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
        producer_name text,
        producer_epoch bigint,
        producer_sequence bigint,
        generation integer NOT NULL DEFAULT 1,
        PRIMARY KEY (epoch, sequence),
        CHECK (log_offset IS NOT NULL OR value IS NOT NULL),
        CHECK (num_nulls(producer_name, producer_epoch, producer_sequence) IN (0, 3))
    ) WITH (fillfactor = 70)
    """,
    # A body is compressed already: compressing it again costs processor time for nothing.
    "ALTER TABLE bookkeeping.outbox ALTER COLUMN value SET STORAGE EXTERNAL",
    """
    CREATE INDEX outbox_unsettled ON bookkeeping.outbox (epoch, sequence)
        WHERE log_offset IS NULL
    """,
    """
    CREATE INDEX outbox_producer ON bookkeeping.outbox (producer_name, producer_sequence)
        WHERE producer_name IS NOT NULL
    """,
    """
    CREATE INDEX outbox_placed ON bookkeeping.outbox (generation, log_offset)
        WHERE log_offset IS NOT NULL
    """,
    """
    CREATE TABLE bookkeeping.idempotency_key (
        agent text NOT NULL,
        caller text NOT NULL,
        key text NOT NULL,
        fingerprint bytea NOT NULL,
        package_id text NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now(),
        log_offset bigint,
        PRIMARY KEY (agent, caller, key)
    )
    """,
    "CREATE INDEX idempotency_key_age ON bookkeeping.idempotency_key (created_at)",
    "CREATE INDEX idempotency_key_package ON bookkeeping.idempotency_key (package_id)",
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
    # Epochs of producers are never given twice, also not to another producer of the same name.
    "CREATE SEQUENCE bookkeeping.producer_epoch",
    """
    CREATE TABLE bookkeeping.producer (
        agent text NOT NULL,
        caller text NOT NULL,
        name text NOT NULL,
        epoch bigint NOT NULL,
        last_sequence bigint NOT NULL,
        registered_at timestamptz NOT NULL DEFAULT now(),
        used_at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (agent, caller, name)
    ) WITH (fillfactor = 50)
    """,
    "CREATE INDEX producer_age ON bookkeeping.producer (used_at)",
    """
    CREATE TABLE bookkeeping.deduplication_snapshot (
        topic text PRIMARY KEY,
        journal_id text NOT NULL,
        position bigint NOT NULL,
        producers jsonb NOT NULL,
        taken_at timestamptz NOT NULL DEFAULT now()
    )
    """,
    "GRANT SELECT, INSERT, UPDATE, DELETE ON bookkeeping.slot, bookkeeping.outbox, "
    "bookkeeping.idempotency_key, bookkeeping.stored_package, bookkeeping.producer, "
    "bookkeeping.deduplication_snapshot TO packhorse_bookkeeper",
    "GRANT SELECT, USAGE, UPDATE ON SEQUENCE bookkeeping.producer_epoch TO packhorse_bookkeeper",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
