"""The topology's tables, as the migrations make them."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Index,
    Integer,
    Table,
    Text,
    func,
    text,
    true,
)
from sqlalchemy.dialects.postgresql import JSONB

from packhorse.db.metadata import METADATA, TOPOLOGY

ANNOUNCEMENT = Table(
    "announcement",
    METADATA,
    Column("owner", Text(collation="C"), primary_key=True),
    Column("holder", Text(collation="C"), primary_key=True),
    Column("address", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("backoff_interval_s", Double, nullable=False),
    Column("received_at", DateTime(timezone=True), nullable=False),
    Column("changed_at", DateTime(timezone=True), nullable=False),
    Column("expires_at", DateTime(timezone=True), nullable=False),
    schema=TOPOLOGY,
)
"""What peers have announced, for as long as it holds; `holder` is "" where the peer connects."""

NONCE = Table(
    "nonce",
    METADATA,
    Column("nonce", Text(collation="C"), primary_key=True),
    Column("expires_at", DateTime(timezone=True), nullable=False),
    Index("nonce_expiry", "expires_at"),
    schema=TOPOLOGY,
)
"""Nonces of accepted requests, for as long as their signatures could be accepted again."""

CLUSTER = Table(
    "cluster",
    METADATA,
    Column(
        "singleton", Boolean, CheckConstraint("singleton"), primary_key=True, server_default=true()
    ),
    Column("id", Text, nullable=False),
    Column("seq", BigInteger, nullable=False, server_default=text("0")),
    Column("last_number", Integer, nullable=False, server_default=text("0")),
    schema=TOPOLOGY,
)
"""One row, written by the first joining: the persistent id, and how often membership changed."""

INSTANCE = Table(
    "instance",
    METADATA,
    Column("id", Text(collation="C"), primary_key=True),
    Column("runtime_id", Text, nullable=False),
    Column("number", Integer, nullable=False, unique=True),
    Column("joined", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("lease_end", DateTime(timezone=True), nullable=False),
    Column("lease_s", Double, nullable=False),
    Column("acknowledged", BigInteger, nullable=False, server_default=text("0")),
    Column("edition", BigInteger, nullable=False, server_default=text("0")),
    Column("properties", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
    Column(
        "changed_at",
        DateTime(timezone=True),
        nullable=False,
        server_default=func.clock_timestamp(),
    ),
    schema=TOPOLOGY,
)
"""The leases: who is active, until when by the database's clock, and what it announces."""

LEADER_TASK = Table(
    "duty",
    METADATA,
    Column("name", Text(collation="C"), primary_key=True),
    Column("holder", Text, nullable=False, server_default=""),
    Column("runtime_id", Text, nullable=False, server_default=""),
    Column("epoch", BigInteger, nullable=False, server_default=text("0")),
    Column(
        "taken_at",
        DateTime(timezone=True),
        nullable=False,
        server_default=func.clock_timestamp(),
    ),
    schema=TOPOLOGY,
)
"""Leader-only work: who may do it, and the epoch that grows whenever that changes."""

LAST_START = Table(
    "last_start",
    METADATA,
    Column(
        "singleton", Boolean, CheckConstraint("singleton"), primary_key=True, server_default=true()
    ),
    Column("started_ms", BigInteger, nullable=False),
    schema=TOPOLOGY,
)
"""The voting store's clock: when the last stay of an instance began; it never goes back."""

HEARTBEAT = Table(
    "heartbeat",
    METADATA,
    Column("instance_id", Text(collation="C"), primary_key=True),
    Column("runtime_id", Text, nullable=False),
    Column("prefix", Text, nullable=False),
    Column("started_ms", BigInteger, nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("acknowledged", Text, nullable=False),
    Column("properties", JSONB, nullable=False),
    Column(
        "beaten_at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()
    ),
    schema=TOPOLOGY,
)
"""What each instance says of itself with the voting store; `beaten_at` is for people."""

VOTING = Table(
    "voting",
    METADATA,
    Column("id", Text(collation="C"), primary_key=True),
    Column("replaces", Text, nullable=False),
    Column("initiator", Text, nullable=False),
    Column("members", JSONB, nullable=False),
    Column(
        "proposed_at",
        DateTime(timezone=True),
        nullable=False,
        server_default=func.clock_timestamp(),
    ),
    schema=TOPOLOGY,
)
"""The votings under way."""

VOTE = Table(
    "vote",
    METADATA,
    Column(
        "voting_id",
        Text(collation="C"),
        ForeignKey(VOTING.c.id, ondelete="CASCADE"),
        primary_key=True,
    ),
    Column("instance_id", Text(collation="C"), primary_key=True),
    Column("yes", Boolean, nullable=False),
    Column(
        "voted_at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()
    ),
    schema=TOPOLOGY,
)
"""What members have said to them."""


def _view(name: str) -> Table:
    return Table(
        name,
        METADATA,
        Column(
            "singleton",
            Boolean,
            CheckConstraint("singleton"),
            primary_key=True,
            server_default=true(),
        ),
        Column("id", Text, nullable=False),
        Column("replaces", Text, nullable=False),
        Column("initiator", Text, nullable=False),
        Column("members", JSONB, nullable=False),
        Column("promoted_at", DateTime(timezone=True), nullable=False),
        schema=TOPOLOGY,
    )


ESTABLISHED_VIEW = _view("established_view")
"""The voting that won last; at most one row."""

PREVIOUS_VIEW = _view("previous_view")
"""The one before, for people; at most one row."""
