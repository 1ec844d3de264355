"""Tables of the publisher: outcomes, known subscribers, samples of queues, commands, releases.

A release is a distribution that goes out at a moment, or when somebody says so: its row ends in the
transaction that writes its package (docs/adr/0094-releases.md).
"""

from alembic import op

revision = "0006"
down_revision = "0005"

STATEMENTS = (
    """
    CREATE TABLE bookkeeping.outcome (
        agent text NOT NULL,
        subscriber text NOT NULL,
        journal_id text NOT NULL,
        log_offset bigint NOT NULL,
        package_id text NOT NULL,
        -- IMPORTED: a later decision has taken the outcome back; a repeat of it changes nothing.
        status text NOT NULL
            CHECK (status IN ('IMPORTED', 'REMOVED', 'REMOVED_FAILED', 'SKIPPED', 'DUPLICATE')),
        attempts integer NOT NULL,
        reason text NOT NULL,
        command_id text NOT NULL,
        decided_at timestamptz NOT NULL,
        recorded_at timestamptz NOT NULL DEFAULT now(),
        entry bytea,
        redistributed_as text NOT NULL DEFAULT '',
        dismissed_at timestamptz,
        left_out boolean NOT NULL DEFAULT false,
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
        forgotten_at timestamptz,
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
    """
    CREATE TABLE bookkeeping.queue_sample (
        agent text,
        sampled_at timestamptz,
        subscribers text[] NOT NULL,
        lags real[] NOT NULL,
        lengths bigint[] NOT NULL,
        rates real[] NOT NULL,
        settled bigint[] NOT NULL DEFAULT '{}',
        started bigint[] NOT NULL DEFAULT '{}',
        taken_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        PRIMARY KEY (agent, sampled_at)
    )
    """,
    """
    CREATE TABLE bookkeeping.release (
        release_id text PRIMARY KEY,
        agent text NOT NULL,
        name text NOT NULL DEFAULT '',
        version integer NOT NULL DEFAULT 1,
        state text NOT NULL
            CHECK (state IN ('DRAFT', 'SCHEDULED', 'SENT', 'FAILED', 'CANCELLED')),
        fires_at timestamptz,
        job bigint,
        caller text NOT NULL,
        roots text[] NOT NULL,
        action text NOT NULL,
        paths text[] NOT NULL,
        deep_paths text[] NOT NULL,
        traceparent text NOT NULL DEFAULT '',
        package_id text NOT NULL DEFAULT '',
        reason text NOT NULL DEFAULT '',
        created_at timestamptz NOT NULL DEFAULT now(),
        changed_at timestamptz NOT NULL DEFAULT now(),
        targets text[] NOT NULL DEFAULT '{}',
        CHECK (state <> 'SCHEDULED' OR fires_at IS NOT NULL)
    )
    """,
    "CREATE INDEX release_moment ON bookkeeping.release (agent, fires_at, release_id)",
    "CREATE INDEX release_ended ON bookkeeping.release (changed_at)"
    " WHERE state IN ('SENT', 'FAILED', 'CANCELLED')",
    "CREATE UNIQUE INDEX release_name ON bookkeeping.release (agent, name)"
    " WHERE name <> '' AND state IN ('DRAFT', 'SCHEDULED', 'FAILED')",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON bookkeeping.outcome, bookkeeping.known_subscriber, "
    "bookkeeping.topic_cursor, bookkeeping.command, bookkeeping.queue_sample, "
    "bookkeeping.release TO packhorse_bookkeeper",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)
