"""The tables of events, jobs and schedules, as the migrations make them."""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Index,
    Integer,
    Sequence,
    Table,
    Text,
    false,
    func,
    text,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from packhorse.db.metadata import JOBS, METADATA


def _name(name: str, *, nullable: bool = False, default: str | None = None) -> Column[str]:
    return Column(name, Text(collation="C"), nullable=nullable, server_default=default)


def _time(name: str, *, nullable: bool = True, now: bool = False) -> Column[object]:
    return Column(
        name,
        DateTime(timezone=True),
        nullable=nullable,
        server_default=func.clock_timestamp() if now else None,
    )


def _count(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default=text("0"))


QUEUE = Table(
    "queue",
    METADATA,
    Column("name", Text(collation="C"), primary_key=True),
    Column("patterns", ARRAY(Text), nullable=False),
    Column("ranking", Integer, nullable=False, server_default=text("0")),
    Column("type", Text, nullable=False, server_default="ORDERED"),
    Column("max_parallel", Integer, nullable=False, server_default=text("-1")),
    Column("max_retries", Integer, nullable=False, server_default=text("10")),
    Column("retry_delay_s", Double, nullable=False, server_default=text("2")),
    Column("max_retry_delay_s", Double, nullable=False, server_default=text("3600")),
    Column("timeout_s", Double),
    Column("keep_history", Boolean, nullable=False, server_default=true()),
    Column("prefer_creator", Boolean, nullable=False, server_default=false()),
    Column("suspended", Boolean, nullable=False, server_default=false()),
    Column("version", BigInteger, nullable=False, server_default=text("1")),
    _time("changed_at", nullable=False, now=True),
    schema=JOBS,
)
"""How the jobs of some topics are done."""

TOPIC = Table(
    "topic",
    METADATA,
    Column("topic", Text(collation="C"), primary_key=True),
    Column("queue", Text(collation="C"), ForeignKey(QUEUE.c.name), nullable=False),
    Index("topic_queue", "queue"),
    schema=JOBS,
)
"""Every topic that a job was given for, and its queue: the one place that says it."""

WORKER = Table(
    "worker",
    METADATA,
    Column("runtime_id", Text(collation="C"), primary_key=True),
    _name("instance"),
    _time("lease_until", nullable=False),
    _time("started_at", nullable=False, now=True),
    schema=JOBS,
)
"""The runs of workers; a job that is ACTIVE for one whose lease is over is anybody's."""

NUMBER = Sequence("number", schema=JOBS, metadata=METADATA)
"""Numbers of jobs, and their turns."""


def _job(name: str, *more: Column[Any] | Index) -> Table:
    return Table(
        name,
        METADATA,
        Column("number", BigInteger, primary_key=True, autoincrement=False),
        _name("topic"),
        _name("id", nullable=True),
        Column("priority", Integer, nullable=False, server_default=text("0")),
        Column("properties", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
        Column("application", Text, nullable=False),
        _time("created_at", nullable=False),
        _time("ready_at", nullable=False),
        _name("only_on", default=""),
        _name("schedule", nullable=True),
        Column("traceparent", Text),
        Column("attempts", Integer, nullable=False, server_default=text("0")),
        Column("retry", Boolean, nullable=False, server_default=false()),
        _name("instance", default=""),
        _count("epoch"),
        _time("started_at"),
        Column("stop_requested", Boolean, nullable=False, server_default=false()),
        Column("progress", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
        Column("log", ARRAY(Text), nullable=False, server_default=text("'{}'::text[]")),
        Column("result_message", Text, nullable=False, server_default=""),
        Column("past_attempts", JSONB, nullable=False, server_default=text("'[]'::jsonb")),
        Column("extra", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
        *more,
        Index(f"{name}_id", "topic", "id", unique=True, postgresql_where=text("id IS NOT NULL")),
        schema=JOBS,
    )


JOB = _job(
    "job",
    Column("max_retries", Integer),
    Column("state", Text, nullable=False, server_default="QUEUED"),
    Column("delayed", Boolean, nullable=False, server_default=false()),
    Column("turn", BigInteger, nullable=False),
    _time("open_at"),
    _name("runtime_id", default=""),
    Column("again", JSONB),
    Index(
        "job_waiting",
        "topic",
        "only_on",
        text("priority DESC"),
        "turn",
        postgresql_where=text("state = 'QUEUED' AND NOT delayed"),
    ),
    Index(
        "job_in_order",
        "topic",
        "turn",
        postgresql_where=text("state = 'QUEUED' AND (NOT delayed OR attempts > 0)"),
    ),
    Index(
        "job_delayed", "topic", "ready_at", postgresql_where=text("state = 'QUEUED' AND delayed")
    ),
    Index(
        "job_reserved",
        "topic",
        "open_at",
        postgresql_where=text("state = 'QUEUED' AND open_at IS NOT NULL"),
    ),
    Index("job_active", "topic", "runtime_id", postgresql_where=text("state = 'ACTIVE'")),
    Index("job_schedule", "schedule", postgresql_where=text("schedule IS NOT NULL")),
)
"""The unfinished jobs, QUEUED and ACTIVE.

`delayed` jobs wait for `ready_at`; `only_on` with an `open_at` is a preference that ends then;
`again` has the properties with which an ACTIVE job shall run once more. `runtime_id` and `epoch`
are the attempt's claim.
"""

FINISHED = _job(
    "finished",
    _name("queue"),
    Column("max_retries", Integer, nullable=False),
    Column("own_max_retries", Integer),
    Column("state", Text, nullable=False),
    _time("finished_at", nullable=False),
    Index("finished_when", "finished_at", "number"),
    Index("finished_topic", "topic", "finished_at", "number"),
    Index(
        "finished_otherwise",
        "finished_at",
        "number",
        postgresql_where=text("state <> 'SUCCEEDED'"),
    ),
)
"""The history.

`max_retries` is what held; `own_max_retries` what whoever gave the job said, if anything: a retry
goes by what the queue says then.
"""

STATISTICS = Table(
    "statistics",
    METADATA,
    Column("queue", Text(collation="C"), primary_key=True),
    Column("topic", Text(collation="C"), primary_key=True),
    Column("instance", Text(collation="C"), primary_key=True),
    _count("succeeded"),
    _count("stopped"),
    _count("given_up"),
    _count("errors"),
    _count("dropped"),
    _count("failed_attempts"),
    _count("attempts"),
    Column("waiting_s", Double, nullable=False, server_default=text("0")),
    Column("processing_s", Double, nullable=False, server_default=text("0")),
    _time("since", nullable=False, now=True),
    _time("last_started_at"),
    _time("last_finished_at"),
    schema=JOBS,
)
"""What was done, by queue, topic and instance; "" stands for instances that are gone, and people.

`attempts` counts ended ones, `failed_attempts` those that did not finish their job or gave it up.
"""
