"""Tables of the publisher, all in the author's database, for the migrations' sake."""

from sqlalchemy import (
    REAL,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Index,
    Integer,
    LargeBinary,
    Sequence,
    Table,
    Text,
    Uuid,
    false,
    func,
    text,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from packhorse.db.metadata import BOOKKEEPING, METADATA

SLOT = Table(
    "slot",
    METADATA,
    Column(
        "singleton", Boolean, CheckConstraint("singleton"), primary_key=True, server_default=true()
    ),
    Column("producer", Uuid, nullable=False, server_default=func.gen_random_uuid()),
    Column("epoch", BigInteger, nullable=False, server_default=text("1")),
    Column("sequence", BigInteger, nullable=False, server_default=text("0")),
    Column("settled_offset", BigInteger, nullable=False, server_default=text("'-1'::bigint")),
    Column("journal_id", Text, nullable=False, server_default=""),
    Column("generation", Integer, nullable=False, server_default=text("1")),
    schema=BOOKKEEPING,
)
"""One row: who this author is to the journal, and the last number it has given to a package.

`generation` counts the logs that it has published to.
"""

OUTBOX = Table(
    "outbox",
    METADATA,
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("snapshot", BigInteger, nullable=False),
    Column("package_id", Text, nullable=False, unique=True),
    Column("entry", LargeBinary, nullable=False),
    Column("value", LargeBinary),
    Column("traceparent", Text),
    Column("accepted_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("log_offset", BigInteger),
    Column("generation", Integer, nullable=False, server_default=text("1")),
    Column("producer_name", Text),
    Column("producer_epoch", BigInteger),
    Column("producer_sequence", BigInteger),
    CheckConstraint("log_offset IS NOT NULL OR value IS NOT NULL"),
    CheckConstraint("num_nulls(producer_name, producer_epoch, producer_sequence) IN (0, 3)"),
    Index("outbox_unsettled", "epoch", "sequence", postgresql_where=text("log_offset IS NULL")),
    Index(
        "outbox_placed",
        "generation",
        "log_offset",
        postgresql_where=text("log_offset IS NOT NULL"),
    ),
    Index(
        "outbox_producer",
        "producer_name",
        "producer_sequence",
        postgresql_where=text("producer_name IS NOT NULL"),
    ),
    schema=BOOKKEEPING,
)
"""Every accepted package as long as the log keeps it; `value` only until it is in the journal."""

IDEMPOTENCY_KEY = Table(
    "idempotency_key",
    METADATA,
    Column("agent", Text, primary_key=True),
    Column("caller", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("fingerprint", LargeBinary, nullable=False),
    Column("package_id", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("log_offset", BigInteger),
    Index("idempotency_key_age", "created_at"),
    Index("idempotency_key_package", "package_id"),
    schema=BOOKKEEPING,
)
"""Which package a caller's key has made; forgotten after a day, or as long as its agent says.

`log_offset` is filled in when the package's outbox row is forgotten before the key.
"""

STORED_PACKAGE = Table(
    "stored_package",
    METADATA,
    Column("key", Text, primary_key=True),
    Column("package_id", Text, nullable=False),
    Column("length", BigInteger, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("log_offset", BigInteger),
    Index("stored_package_offset", "log_offset"),
    schema=BOOKKEEPING,
)
"""Bodies in the blob store, committed with their outbox row; the cleanup removes them (R21)."""

PRODUCER_EPOCH = Sequence("producer_epoch", metadata=METADATA, schema=BOOKKEEPING)
"""Gives epochs to producers, none of them twice."""

PRODUCER = Table(
    "producer",
    METADATA,
    Column("agent", Text, primary_key=True),
    Column("caller", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("last_sequence", BigInteger, nullable=False),
    Column("registered_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("used_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Index("producer_age", "used_at"),
    schema=BOOKKEEPING,
)
"""A caller's replayable sources: the epoch that fences, the highest sequence that is committed."""

DEDUPLICATION_SNAPSHOT = Table(
    "deduplication_snapshot",
    METADATA,
    Column("topic", Text, primary_key=True),
    Column("journal_id", Text, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("producers", JSONB, nullable=False),
    Column("taken_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    schema=BOOKKEEPING,
)
"""What the deduplication of a topic knew below `position`; replay goes on from there."""

OUTCOME = Table(
    "outcome",
    METADATA,
    Column("agent", Text, primary_key=True),
    Column("subscriber", Text, primary_key=True),
    Column("journal_id", Text, primary_key=True),
    Column("log_offset", BigInteger, primary_key=True, autoincrement=False),
    Column("package_id", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Column("command_id", Text, nullable=False),
    Column("decided_at", DateTime(timezone=True), nullable=False),
    Column("recorded_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("entry", LargeBinary),
    Column("redistributed_as", Text, nullable=False, server_default=""),
    Column("dismissed_at", DateTime(timezone=True)),
    Column("left_out", Boolean, nullable=False, server_default=false()),
    CheckConstraint("status IN ('REMOVED', 'REMOVED_FAILED', 'SKIPPED', 'DUPLICATE', 'IMPORTED')"),
    Index("outcome_package", "agent", "log_offset"),
    Index("outcome_log", "agent", "journal_id", "log_offset"),
    Index(
        "outcome_failed",
        *("agent", "subscriber", "recorded_at", "log_offset", "journal_id"),
        postgresql_where=text("status = 'REMOVED_FAILED'"),
    ),
    schema=BOOKKEEPING,
)
"""Packages that a subscriber is done with and did not import; the error queues (R18).

An IMPORTED row is the trace of an outcome that was taken back: no repeat brings it back (R9).
"""

KNOWN_SUBSCRIBER = Table(
    "known_subscriber",
    METADATA,
    Column("agent", Text, primary_key=True),
    Column("subscriber", Text, primary_key=True),
    Column("announcement", LargeBinary, nullable=False),
    Column("seen_at", DateTime(timezone=True), nullable=False),
    Column("forgotten_at", DateTime(timezone=True)),
    schema=BOOKKEEPING,
)
"""The last announcement of each subscriber, kept longer than the discovery topic keeps it.

A subscriber that was forgotten and has not announced itself since is not shown.
"""

QUEUE_SAMPLE = Table(
    "queue_sample",
    METADATA,
    Column("agent", Text, primary_key=True),
    Column("sampled_at", DateTime(timezone=True), primary_key=True),
    Column("subscribers", ARRAY(Text), nullable=False),
    Column("lags", ARRAY(REAL), nullable=False),
    Column("lengths", ARRAY(BigInteger), nullable=False),
    Column("rates", ARRAY(REAL), nullable=False),
    Column("settled", ARRAY(BigInteger), nullable=False, server_default=text("'{}'::bigint[]")),
    Column("started", ARRAY(BigInteger), nullable=False, server_default=text("'{}'::bigint[]")),
    Column(
        "taken_at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()
    ),
    schema=BOOKKEEPING,
)
"""How an agent's queues were in a minute: of the subscriber at a place, its figures there.

It has imported what lies above where it `started`, up to what was `settled`, or has an outcome.
"""

TOPIC_CURSOR = Table(
    "topic_cursor",
    METADATA,
    Column("agent", Text, primary_key=True),
    Column("topic", Text, primary_key=True),
    Column("journal_id", Text, nullable=False),
    Column("log_offset", BigInteger, nullable=False),
    schema=BOOKKEEPING,
)
"""Up to where an agent has taken a topic in, and up to which package it has published events."""

COMMAND = Table(
    "command",
    METADATA,
    Column("command_id", Text, primary_key=True),
    Column("agent", Text, nullable=False),
    Column("subscriber", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("log_offset", BigInteger),
    Column("journal_id", Text, nullable=False),
    Column("issued_by", Text, nullable=False),
    Column("issued_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("sent_at", DateTime(timezone=True)),
    Column("seen_at", DateTime(timezone=True)),
    Column("ended_at", DateTime(timezone=True)),
    Column("state", Text, nullable=False),
    Column("removed", BigInteger),
    Column("reason", Text, nullable=False, server_default=""),
    CheckConstraint("state IN ('ISSUED', 'SENT', 'SEEN', 'APPLIED', 'REJECTED')"),
    Index("command_issued", "agent", "issued_at"),
    Index(
        "command_unsent",
        *("agent", "issued_at", "command_id"),
        postgresql_where=text("state = 'ISSUED'"),
    ),
    schema=BOOKKEEPING,
)
"""Every command that an operator gave, by whom, and what became of it."""

RELEASE = Table(
    "release",
    METADATA,
    Column("release_id", Text, primary_key=True),
    Column("agent", Text, nullable=False),
    Column("name", Text, nullable=False, server_default=""),
    Column("version", Integer, nullable=False, server_default=text("1")),
    Column("state", Text, nullable=False),
    Column("fires_at", DateTime(timezone=True)),
    Column("job", BigInteger),
    Column("caller", Text, nullable=False),
    Column("roots", ARRAY(Text), nullable=False),
    Column("action", Text, nullable=False),
    Column("paths", ARRAY(Text), nullable=False),
    Column("deep_paths", ARRAY(Text), nullable=False),
    Column("traceparent", Text, nullable=False, server_default=""),
    Column("package_id", Text, nullable=False, server_default=""),
    Column("reason", Text, nullable=False, server_default=""),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("changed_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("targets", ARRAY(Text), nullable=False, server_default=text("'{}'::text[]")),
    CheckConstraint("state IN ('DRAFT', 'SCHEDULED', 'SENT', 'FAILED', 'CANCELLED')"),
    CheckConstraint("state <> 'SCHEDULED' OR fires_at IS NOT NULL"),
    Index("release_moment", "agent", "fires_at", "release_id"),
    Index(
        "release_ended",
        "changed_at",
        postgresql_where=text("state IN ('SENT', 'FAILED', 'CANCELLED')"),
    ),
    Index(
        "release_name",
        *("agent", "name"),
        unique=True,
        postgresql_where=text("name <> '' AND state IN ('DRAFT', 'SCHEDULED', 'FAILED')"),
    ),
    schema=BOOKKEEPING,
)
"""Requests that go out later, each as one package; `job` is the one that waits for the moment.

The row is SENT in the transaction that writes the package, so it is sent once.
"""
