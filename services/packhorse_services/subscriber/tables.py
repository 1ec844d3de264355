"""Tables of the subscriber, all in its own database, for the migrations' sake."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Identity,
    Index,
    Integer,
    Table,
    Text,
    false,
    func,
    text,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from packhorse.db.metadata import BOOKKEEPING, METADATA

_TIME = DateTime(timezone=True)
_AGENT = Text(collation="C")

LEASE = Table(
    "lease",
    METADATA,
    Column(
        "singleton", Boolean, CheckConstraint("singleton"), primary_key=True, server_default=true()
    ),
    Column("holder", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("expires_at", _TIME, nullable=False),
    schema=BOOKKEEPING,
)
"""One row: which worker may import into this database, and until when by its clock (R11)."""

POSITION = Table(
    "position",
    METADATA,
    Column("publisher_agent", _AGENT, primary_key=True),
    Column("journal_id", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("log_offset", BigInteger, nullable=False),
    Column("package_id", Text, nullable=False),
    Column("moved_at", _TIME, nullable=False, server_default=func.now()),
    Column("started_offset", BigInteger, nullable=False, server_default=text("'-1'::bigint")),
    schema=BOOKKEEPING,
)
"""Each subscription's last processed offset, what was there, and the epoch that may move it (R24,
R25)."""

JOINED_SNAPSHOT = Table(
    "joined_snapshot",
    METADATA,
    Column(
        "singleton", Boolean, CheckConstraint("singleton"), primary_key=True, server_default=true()
    ),
    Column("snapshot_id", Text, nullable=False),
    Column("log_offset", BigInteger, nullable=False),
    Column("journal_id", Text, nullable=False),
    Column("publisher_agents", ARRAY(Text), nullable=False),
    Column("subscriber", Text, nullable=False),
    Column("left_out", Text, nullable=False),
    Column("joined_at", _TIME, nullable=False, server_default=func.clock_timestamp()),
    schema=BOOKKEEPING,
)
"""At most one row: the last snapshot that was loaded, whom it is for, and its `left_out`."""

CONTENT_FILTER = Table(
    "content_filter",
    METADATA,
    Column(
        "singleton", Boolean, CheckConstraint("singleton"), primary_key=True, server_default=true()
    ),
    Column("include", ARRAY(Text), nullable=False),
    Column("exclude", ARRAY(Text), nullable=False),
    Column("since", _TIME, nullable=False, server_default=func.clock_timestamp()),
    Column("map_paths", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
    Column("exclude_properties", ARRAY(Text), nullable=False, server_default=text("'{}'::text[]")),
    schema=BOOKKEEPING,
)
"""At most one row: what imports take, leave out and map (R35); without it everything as it is."""

ATTEMPT = Table(
    "attempt",
    METADATA,
    Column("publisher_agent", _AGENT, primary_key=True),
    Column("log_offset", BigInteger, nullable=False),
    Column("package_id", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("last_error", Text, nullable=False),
    Column("blocked_since_ms", BigInteger, nullable=False),
    Column("alone_until", BigInteger, nullable=False),
    schema=BOOKKEEPING,
)
"""What a subscription was about to try: committed before the try, meaningless once the subscription
is past it."""

APPLIED_SEQUENCE = Table(
    "applied_sequence",
    METADATA,
    Column("publisher_agent", _AGENT, primary_key=True),
    Column("producer", _AGENT, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("log_offset", BigInteger),
    schema=BOOKKEEPING,
)
"""The highest (epoch, sequence) that a subscription has processed of each producer, and where
(R27)."""

STATUS = Table(
    "status",
    METADATA,
    Column("publisher_agent", _AGENT, primary_key=True),
    Column("log_offset", BigInteger, primary_key=True, autoincrement=False),
    Column("subscriber", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("package_id", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Column("command_id", Text, nullable=False),
    Column("decided_at", _TIME, nullable=False, server_default=func.clock_timestamp()),
    Column("journal_id", Text, nullable=False),
    Column("left_out", Boolean, nullable=False, server_default=false()),
    CheckConstraint("status IN ('IMPORTED', 'REMOVED', 'REMOVED_FAILED', 'SKIPPED', 'DUPLICATE')"),
    schema=BOOKKEEPING,
)
"""What became of packages, committed with the import (R9)."""

STATUS_MARK = Table(
    "status_mark",
    METADATA,
    Column("publisher_agent", _AGENT, primary_key=True),
    Column("log_offset", BigInteger, nullable=False),
    schema=BOOKKEEPING,
)
"""Up to which offset a subscription's statuses are in the journal; a subscription writes them in
offset order."""

CLEAR_COMMAND = Table(
    "clear_command",
    METADATA,
    Column("subscriber", Text, primary_key=True),
    Column("command_id", Text, primary_key=True),
    Column("publisher_agent", Text, nullable=False),
    Column("journal_id", Text, nullable=False),
    Column("up_to", BigInteger, nullable=False),
    Column("received_at", _TIME, nullable=False, server_default=func.clock_timestamp()),
    schema=BOOKKEEPING,
)
"""Clear commands received; `journal_id` is the package topic's, whose offsets `up_to` means."""

COMMAND_POSITION = Table(
    "command_position",
    METADATA,
    Column("subscriber", Text, primary_key=True),
    Column("journal_id", Text, nullable=False),
    Column("log_offset", BigInteger, nullable=False),
    schema=BOOKKEEPING,
)
"""The last command read from this subscriber's partition of the command topic."""

SUBSCRIPTION_CONTROL = Table(
    "subscription_control",
    METADATA,
    Column("publisher_agent", _AGENT, primary_key=True),
    Column("desired", Text, nullable=False),
    Column("command_id", Text, nullable=False),
    Column("changed_at", _TIME, nullable=False, server_default=func.clock_timestamp()),
    CheckConstraint("desired IN ('RUN', 'PAUSE', 'STOP')"),
    schema=BOOKKEEPING,
)
"""What an operator wants of a subscription; a subscription without a row runs."""

COMMAND_STATUS = Table(
    "command_status",
    METADATA,
    Column("command_id", Text, primary_key=True),
    Column("state", Text, primary_key=True),
    Column("subscriber", Text, nullable=False),
    Column("publisher_agent", Text, nullable=False),
    Column("removed", BigInteger, nullable=False, server_default=text("'0'::bigint")),
    Column("reason", Text, nullable=False, server_default=""),
    Column("decided_at", _TIME, nullable=False, server_default=func.clock_timestamp()),
    Column("sent", Boolean, nullable=False, server_default=false()),
    CheckConstraint("state IN ('SEEN', 'APPLIED', 'REJECTED')"),
    schema=BOOKKEEPING,
)
"""What is reported about commands, committed with what they did and sent afterwards (R9)."""

AUDIT = Table(
    "audit",
    METADATA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("happened_at", _TIME, nullable=False, server_default=func.clock_timestamp()),
    Column("subscriber", Text, nullable=False),
    Column("publisher_agent", Text, nullable=False),
    Column("command_id", Text, nullable=False),
    Column("issued_by", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("detail", JSONB, nullable=False, server_default="{}"),
    Index("audit_acts", "happened_at", "id", postgresql_where=text("command_id = ''::text")),
    Index(
        "audit_callers",
        *("issued_by", "happened_at", "id"),
        postgresql_where=text("command_id = ''::text"),
    ),
    schema=BOOKKEEPING,
)
"""What operators did to the subscriptions of this database, and people to its content and jobs.

Committed with what they did.
"""

APPLIED_PACKAGE = Table(
    "applied_package",
    METADATA,
    Column("publisher_agent", _AGENT, primary_key=True),
    Column("package_id", _AGENT, primary_key=True),
    Column("applied_at", _TIME, nullable=False, server_default=func.clock_timestamp()),
    Index("applied_package_age", "applied_at"),
    schema=BOOKKEEPING,
)
"""Ids of imported packages, for a journal that may hold one package under two numbers."""
