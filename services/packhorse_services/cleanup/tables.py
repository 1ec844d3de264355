"""Tables of the cleanup, all in the author's database, for the migrations' sake."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    Table,
    Text,
    func,
    text,
    true,
)
from sqlalchemy.dialects.postgresql import JSONB

from packhorse.db.metadata import BOOKKEEPING, METADATA

CLEANUP = Table(
    "cleanup",
    METADATA,
    Column(
        "singleton", Boolean, CheckConstraint("singleton"), primary_key=True, server_default=true()
    ),
    Column("epoch", BigInteger, nullable=False, server_default=text("0")),
    Column("journal_id", Text, nullable=False, server_default=""),
    schema=BOOKKEEPING,
)
"""One row: whose turn it is, and which journal the stored offsets speak of."""

CLEANUP_RUN = Table(
    "cleanup_run",
    METADATA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("epoch", BigInteger),
    Column("origin", Text, nullable=False),
    Column("dry_run", Boolean, nullable=False),
    Column("state", Text, nullable=False),
    Column("requested_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("started_at", DateTime(timezone=True)),
    Column("ended_at", DateTime(timezone=True)),
    Column("journal_id", Text),
    Column("oldest_offset", BigInteger),
    Column("next_offset", BigInteger),
    Column("kept", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
    Column("error", Text),
    Index(
        "cleanup_run_requested",
        "state",
        unique=True,
        postgresql_where=text("state = 'REQUESTED'::text"),
    ),
    schema=BOOKKEEPING,
)
"""The last runs; at most one waits."""

CLEANUP_REMOVAL = Table(
    "cleanup_removal",
    METADATA,
    Column(
        "run",
        BigInteger,
        ForeignKey(f"{BOOKKEEPING}.cleanup_run.id", ondelete="CASCADE"),
        primary_key=True,
    ),
    Column("key", Text, primary_key=True),
    Column("reason", Text, nullable=False),
    Column("length", BigInteger, nullable=False),
    Column("log_offset", BigInteger),
    Column("removed_at", DateTime(timezone=True)),
    schema=BOOKKEEPING,
)
"""What a run removes, written before it is removed; in a dry run what it would remove."""

ORPHAN = Table(
    "orphan",
    METADATA,
    Column("key", Text, primary_key=True),
    Column("first_seen", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("run", BigInteger, nullable=False),
    schema=BOOKKEEPING,
)
"""Blobs that no stored package stands for, since when, and the run that saw them last."""
