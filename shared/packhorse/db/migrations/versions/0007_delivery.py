"""Tables of the publisher: producers, outcomes, known subscribers, commands, cursors."""

from alembic import op

revision = "0007"
down_revision = "0006"

STATEMENTS = (
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
    "ALTER TABLE bookkeeping.outbox ADD COLUMN producer_name text, "
    "ADD COLUMN producer_epoch bigint, ADD COLUMN producer_sequence bigint, "
    "ADD CHECK (num_nulls(producer_name, producer_epoch, producer_sequence) IN (0, 3))",
    """
    CREATE INDEX outbox_producer ON bookkeeping.outbox (producer_name, producer_sequence)
        WHERE producer_name IS NOT NULL
    """,
    # Offsets of an earlier log say nothing about the present one: each log is a generation.
    "ALTER TABLE bookkeeping.slot ADD COLUMN generation integer NOT NULL DEFAULT 1",
    "ALTER TABLE bookkeeping.outbox ADD COLUMN generation integer NOT NULL DEFAULT 1",
    """
    CREATE INDEX outbox_placed ON bookkeeping.outbox (generation, log_offset)
        WHERE log_offset IS NOT NULL
    """,
    "ALTER TABLE bookkeeping.idempotency_key ADD COLUMN log_offset bigint",
    "CREATE INDEX idempotency_key_package ON bookkeeping.idempotency_key (package_id)",
    """
    CREATE TABLE bookkeeping.deduplication_snapshot (
        topic text PRIMARY KEY,
        journal_id text NOT NULL,
        position bigint NOT NULL,
        producers jsonb NOT NULL,
        taken_at timestamptz NOT NULL DEFAULT now()
    )
    """,
    """
    CREATE TABLE bookkeeping.outcome (
        agent text NOT NULL,
        subscriber text NOT NULL,
        journal_id text NOT NULL,
        log_offset bigint NOT NULL,
        package_id text NOT NULL,
        -- IMPORTED: a later decision has taken the outcome back; a repeat of it changes nothing.
        status text NOT NULL
            CHECK (status IN ('REMOVED', 'REMOVED_FAILED', 'SKIPPED', 'IMPORTED')),
        attempts integer NOT NULL,
        reason text NOT NULL,
        command_id text NOT NULL,
        decided_at timestamptz NOT NULL,
        recorded_at timestamptz NOT NULL DEFAULT now(),
        entry bytea,
        redistributed_as text NOT NULL DEFAULT '',
        PRIMARY KEY (agent, subscriber, journal_id, log_offset)
    )
    """,
    "CREATE INDEX outcome_package ON bookkeeping.outcome (agent, log_offset)",
    "CREATE INDEX outcome_log ON bookkeeping.outcome (agent, journal_id, log_offset)",
    """
    CREATE INDEX outcome_failed ON bookkeeping.outcome
        (agent, subscriber, recorded_at, log_offset, journal_id) WHERE status = 'REMOVED_FAILED'
    """,
    """
    CREATE TABLE bookkeeping.known_subscriber (
        agent text NOT NULL,
        subscriber text NOT NULL,
        announcement bytea NOT NULL,
        seen_at timestamptz NOT NULL,
        PRIMARY KEY (agent, subscriber)
    ) WITH (fillfactor = 50)
    """,
    """
    CREATE TABLE bookkeeping.topic_cursor (
        agent text NOT NULL,
        topic text NOT NULL,
        journal_id text NOT NULL,
        log_offset bigint NOT NULL,
        PRIMARY KEY (agent, topic)
    ) WITH (fillfactor = 50)
    """,
    """
    CREATE TABLE bookkeeping.command (
        command_id text PRIMARY KEY,
        agent text NOT NULL,
        subscriber text NOT NULL,
        kind text NOT NULL,
        log_offset bigint,
        journal_id text NOT NULL,
        issued_by text NOT NULL,
        issued_at timestamptz NOT NULL DEFAULT now(),
        sent_at timestamptz,
        seen_at timestamptz,
        ended_at timestamptz,
        state text NOT NULL CHECK (state IN ('ISSUED', 'SENT', 'SEEN', 'APPLIED', 'REJECTED')),
        removed bigint,
        reason text NOT NULL DEFAULT ''
    )
    """,
    "CREATE INDEX command_issued ON bookkeeping.command (agent, issued_at)",
    """
    CREATE INDEX command_unsent ON bookkeeping.command (agent, issued_at, command_id)
        WHERE state = 'ISSUED'
    """,
    "GRANT SELECT, INSERT, UPDATE, DELETE ON bookkeeping.producer, "
    "bookkeeping.deduplication_snapshot, bookkeeping.outcome, bookkeeping.known_subscriber, "
    "bookkeeping.topic_cursor, bookkeeping.command TO packhorse_bookkeeper",
    "GRANT SELECT, USAGE, UPDATE ON SEQUENCE bookkeeping.producer_epoch TO packhorse_bookkeeper",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
