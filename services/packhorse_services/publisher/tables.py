"""Tables of the publisher, all in the author's database, for the migrations' sake."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Index,
    LargeBinary,
    Table,
    Text,
    Uuid,
    func,
    text,
    true,
)

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
    schema=BOOKKEEPING,
)
"""One row: who this author is to the journal, and the last number it has given to a package."""

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
    CheckConstraint("log_offset IS NOT NULL OR value IS NOT NULL"),
    Index("outbox_unsettled", "epoch", "sequence", postgresql_where=text("log_offset IS NULL")),
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
    Index("idempotency_key_age", "created_at"),
    schema=BOOKKEEPING,
)
"""Which package a caller's key has made; forgotten after a day."""

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
