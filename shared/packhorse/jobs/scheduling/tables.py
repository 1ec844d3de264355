"""The tables of schedules, as the migrations make them."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Index,
    Integer,
    Interval,
    SmallInteger,
    Table,
    Text,
    false,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from packhorse.db.metadata import JOBS, METADATA

SCHEDULE = Table(
    "schedule",
    METADATA,
    Column("name", Text(collation="C"), primary_key=True),
    Column("description", Text, nullable=False, server_default=""),
    Column("cron", Text),
    Column("time_zone", Text),
    Column("period", Interval),
    Column("at", DateTime(timezone=True)),
    Column("action", Text, nullable=False),
    Column("topic", Text, nullable=False),
    Column("properties", JSONB, nullable=False),
    Column("priority", SmallInteger, nullable=False),
    Column("run_on", Text, nullable=False),
    Column("concurrent", Boolean, nullable=False),
    Column("missed", Text, nullable=False),
    Column("missed_limit", Integer, nullable=False),
    Column("not_before", DateTime(timezone=True)),
    Column("times", Integer),
    Column("suspended", Boolean, nullable=False),
    Column("origin", Text, nullable=False),
    Column("changed", Boolean, nullable=False, server_default=false()),
    Column("version", BigInteger, nullable=False, server_default=text("1")),
    Column("next_tick", DateTime(timezone=True)),
    Column("last_tick", DateTime(timezone=True)),
    Column("times_left", Integer),
    Column("planned_at", DateTime(timezone=True), nullable=False),
    Column(
        "created_at",
        DateTime(timezone=True),
        nullable=False,
        server_default=func.clock_timestamp(),
    ),
    Column(
        "updated_at",
        DateTime(timezone=True),
        nullable=False,
        server_default=func.clock_timestamp(),
    ),
    Index(
        "schedule_due",
        "next_tick",
        postgresql_where=text("NOT suspended AND next_tick IS NOT NULL"),
    ),
    Index("schedule_planned", "planned_at"),
    schema=JOBS,
)
"""What shall happen when; `next_fire_time` is planned by whoever fires or changes it."""

FIRE_TIME = Table(
    "tick",
    METADATA,
    Column("schedule", Text(collation="C"), primary_key=True),
    Column("tick", DateTime(timezone=True), primary_key=True),
    Column("outcome", Text, nullable=False),
    Column("decided_at", DateTime(timezone=True), nullable=False),
    Column("instance", Text, nullable=False),
    Column("jobs", ARRAY(BigInteger), nullable=False),
    Column("missed", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Index("tick_decided", "decided_at"),
    schema=JOBS,
)
"""The outcome of each fire time; the key is what makes it fire once."""
