"""The columns of the pipeline's tables. Every frame that is written has exactly these."""

from pyspark.sql import DataFrame
from pyspark.sql import types as t

from packhorse_services.pipeline.errors import SchemaChanged

_PLACE = [
    t.StructField("partition", t.IntegerType(), False),
    t.StructField("offset", t.LongType(), False),
    t.StructField("time", t.TimestampType(), False),
    t.StructField("journal_id", t.StringType(), False),
    t.StructField("day", t.DateType(), False),
]
"""Where a record is in its topic, and when the journal took it (R28)."""

_HEADERS = t.ArrayType(
    t.StructType(
        [t.StructField("key", t.StringType()), t.StructField("value", t.BinaryType())],
    )
)


def _text(*names: str) -> list[t.StructField]:
    return [t.StructField(name, t.StringType(), False) for name in names]


def _long(*names: str) -> list[t.StructField]:
    return [t.StructField(name, t.LongType(), False) for name in names]


def _texts(*names: str) -> list[t.StructField]:
    return [t.StructField(name, t.ArrayType(t.StringType(), False), False) for name in names]


BRONZE = t.StructType(
    [
        *_text("topic"),
        *_PLACE,
        t.StructField("key", t.StringType()),
        t.StructField("headers", _HEADERS, False),
        t.StructField("value", t.BinaryType(), False),
    ]
)
QUARANTINE = t.StructType([*BRONZE.fields, *_text("reason")])
GAPS = t.StructType(
    [
        *_text("topic", "journal_id"),
        t.StructField("partition", t.IntegerType(), False),
        *_long("first_missing", "next_offset"),
        t.StructField("accepted_at", t.TimestampType(), False),
    ]
)
PACKAGES = t.StructType(
    [
        *_PLACE,
        *_text("package_id", "publisher_agent", "action"),
        *_texts("paths", "deep_paths"),
        *_text("range_from", "range_to", "user", "producer"),
        *_long("epoch", "sequence", "body_length", "node_count", "accepted_ms"),
        *_text("publisher_instance", "package_type", "body_sha256"),
        *_long("content_length"),
        t.StructField("body_reference", t.StringType()),
    ]
)
STATUSES = t.StructType(
    [
        *_PLACE,
        *_text("subscriber", "publisher_agent"),
        *_long("package_offset"),
        *_text("status", "package_id"),
        *_long("attempts"),
        *_text("reason", "command_id"),
        *_long("decided_ms"),
        *_text("subscriber_instance", "package_journal_id"),
    ]
)
COMMAND_STATUSES = t.StructType(
    [
        *_PLACE,
        *_text("command_id", "subscriber", "publisher_agent", "state"),
        *_long("removed"),
        *_text("reason"),
        *_long("decided_ms"),
    ]
)
LANE = t.StructType(
    [
        *_text("publisher_agent"),
        *_long("offset", "retries"),
        *_text("state", "last_error"),
        *_long("next_attempt_ms", "blocked_since_ms"),
        *_text("journal_id"),
        *_long("epoch", "settled_offset", "started_offset"),
    ]
)
ANNOUNCEMENTS = t.StructType(
    [
        *_PLACE,
        *_text("subscriber"),
        t.StructField("lanes", t.ArrayType(LANE, False), False),
        t.StructField("editable", t.BooleanType(), False),
        *_long("max_retries"),
        *_text("endpoint"),
        *_long("announced_ms"),
        *_text("subscriber_instance"),
    ]
)
COMMANDS = t.StructType(
    [
        *_PLACE,
        *_text("command_id", "kind", "subscriber", "publisher_agent"),
        t.StructField("up_to", t.LongType()),
        t.StructField("desired", t.StringType()),
        *_text("user"),
        *_long("issued_ms"),
        *_text("package_journal_id"),
    ]
)
EVENTS = t.StructType(
    [
        *_PLACE,
        *_text("package_id", "publisher_agent"),
        *_long("package_offset"),
        *_texts("paths", "deep_paths"),
        *_text("action"),
        *_texts("imported", "removed", "failed", "skipped", "away"),
    ]
)
NODES = t.StructType([*_text("path", "type", "properties", "binaries")])
"""Content: the JSON texts are as Postgres writes jsonb."""
_HOUR = [
    t.StructField("day", t.DateType(), False),
    t.StructField("hour", t.TimestampType(), False),
]
"""The hour in UTC that a measure is about, and its day, by which the tables are partitioned."""

_LATENCY = [
    t.StructField(f"latency_{which}_ms", t.LongType()) for which in ("p50", "p95", "p99", "max")
]
"""Exact within the hour; null when nothing was measured."""

DELIVERY = t.StructType(
    [
        *_text("subscriber", "publisher_agent"),
        *_HOUR,
        *_long("delivered"),
        *_LATENCY,
        *_long("bytes", "nodes", "attempts", "failures", "removed", "skipped", "backlog_end"),
        *_long("blocked_ms"),
        t.StructField("editable", t.BooleanType(), False),
    ]
)
"""Latency: accepted → imported. `failures` are failed attempts; `backlog_end`: packages that
were not imported at the end of the hour, or when the subscriber last told of itself in it."""
FAILURES = t.StructType(
    [*_text("subscriber", "publisher_agent"), *_HOUR, *_text("reason"), *_long("count")]
)
SLOWEST = t.StructType(
    [
        *_text("subscriber", "publisher_agent"),
        *_HOUR,
        t.StructField("rank", t.IntegerType(), False),
        *_text("path"),
        *_long("paths", "latency_ms"),
        *_text("package_id"),
        *_long("offset"),
    ]
)
"""The packages that took longest: `rank` from 1, the first of their `paths` paths."""
PUBLISHING = t.StructType(
    [
        *_text("publisher_agent"),
        *_HOUR,
        *_long("packages", "adds", "deletes", "invalidates", "tests", "bytes", "nodes"),
        *_LATENCY,
    ]
)
"""Latency: accepted → in the journal."""
LANES = t.StructType(
    [
        *_text("subscriber", "publisher_agent", "journal_id"),
        *_HOUR,
        *_long("announced_ms", "sequence", "offset", "reached", "retries"),
        t.StructField("blocked", t.BooleanType(), False),
        t.StructField("editable", t.BooleanType(), False),
    ]
)
"""What a lane last told in an hour, and how far it had ever come: where the next hour begins."""
MEASURED = t.StructType([*_text("table", "table_id"), *_long("version", "measured_ms")])
"""Up to which version of each table the measures are made."""

BULK_PARTS = t.StructType(
    [
        t.StructField("part", t.IntegerType(), False),
        *_text("deep_path", "range_from", "range_to", "package_id", "body_sha256"),
        *_long("body_length", "content_length", "node_count"),
        t.StructField("part_count", t.IntegerType(), False),
        *_long("seen_epoch", "seen_sequence", "snapshot_ms"),
    ]
)
"""The stored packages of one bulk distribution, all of one snapshot."""


def require(frame: DataFrame, schema: t.StructType, table: str) -> DataFrame:
    """Return the columns of `schema` from `frame`, in order. Raises `SchemaChanged`."""
    compare(frame.schema, schema, table)
    return frame.select(*[field.name for field in schema.fields])


def compare(actual: t.StructType, schema: t.StructType, table: str) -> None:
    """Raise `SchemaChanged` unless `actual` has the columns of `schema`."""
    found = {field.name: field.dataType for field in actual.fields}
    for field in schema.fields:
        if field.name not in found:
            raise SchemaChanged(f"table {table} lacks the column {field.name}; upgrade this build")
        if found[field.name].simpleString() != field.dataType.simpleString():
            raise SchemaChanged(
                f"column {field.name} of {table} is {found[field.name].simpleString()}, not "
                f"{field.dataType.simpleString()}; another build has written it"
            )
