"""The tables of events, as the migrations make them."""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Identity,
    Index,
    Table,
    Text,
    false,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.dialects.postgresql.base import ischema_names
from sqlalchemy.types import UserDefinedType

from packhorse.db.metadata import JOBS, METADATA


class TransactionId(UserDefinedType[str]):
    """Postgres' 64-bit number of a transaction."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        """Return the type's name."""
        return "xid8"


class TransactionSnapshot(UserDefinedType[str]):
    """Which transactions had ended at a moment."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        """Return the type's name."""
        return "pg_snapshot"


ischema_names.update({"xid8": TransactionId, "pg_snapshot": TransactionSnapshot})

_NOW = func.clock_timestamp()

EVENT = Table(
    "event",
    METADATA,
    Column("number", BigInteger, Identity(always=False), primary_key=True),
    Column("topic", Text(collation="C"), nullable=False),
    Column("application", Text(collation="C"), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=_NOW),
    Column("properties", JSONB, nullable=False),
    Column("echo", Boolean, nullable=False, server_default=false()),
    Column("xid", TransactionId, nullable=False, server_default=text("pg_current_xact_id()")),
    Index("event_written", "xid", "number"),
    schema=JOBS,
)
"""Events for all instances, until they are pruned."""

CONTENT_WATCH = Table(
    "content_watch",
    METADATA,
    Column("name", Text(collation="C"), primary_key=True),
    Column("roots", ARRAY(Text(collation="C")), nullable=False),
    Column("job_topic", Text(collation="C")),
    Column("types", ARRAY(Text(collation="C")), nullable=False, server_default=text("'{}'")),
    schema=JOBS,
)
"""Who watches content, where and of which types, and the topic of the jobs that changes become."""

EVENT_CURSOR = Table(
    "event_cursor",
    METADATA,
    Column("instance_id", Text(collation="C"), primary_key=True),
    Column("position", Text, nullable=False),
    Column("stored_at", DateTime(timezone=True), nullable=False, server_default=_NOW),
    schema=JOBS,
)
"""How far each instance has got."""

EVENT_HORIZON = Table(
    "event_horizon",
    METADATA,
    Column("number", BigInteger, Identity(always=True), primary_key=True),
    Column(
        "seen", TransactionSnapshot, nullable=False, server_default=text("pg_current_snapshot()")
    ),
    Column("taken_at", DateTime(timezone=True), nullable=False, server_default=_NOW),
    Column("removed_to", TransactionId),
    schema=JOBS,
)
"""Which events were there at a time; once that is long ago, they are removed.

`removed_to`: the last transaction that any of them was written in.
"""
