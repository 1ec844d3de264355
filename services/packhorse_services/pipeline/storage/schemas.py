"""The columns of the pipeline's tables. Every frame that is written has exactly these.

What a column means stands beside it, and goes into the table as the column's comment, which
Spark's DESCRIBE shows. docs/tables.md is made from it (`make tables`).
"""

from pyspark.sql import types as t

from packhorse_services.pipeline.storage import columns as c

_PLACE = [
    c.integer("partition", "Partition of the record in its topic"),
    c.long("offset", "Offset of the record in its partition"),
    c.column("time", t.TimestampType(), "When the journal took the record, by its clock"),
    c.text("journal_id", "Identity of the record's topic; another one after a topic is made anew"),
    c.column("day", t.DateType(), "Day of `time` in UTC"),
]
"""Where a record is in its topic, and when the journal took it (R28)."""

_HEADERS = t.ArrayType(
    t.StructType(
        [
            t.StructField("key", t.StringType(), metadata={"comment": "Name of the header"}),
            t.StructField("value", t.BinaryType(), metadata={"comment": "Its value"}),
        ],
    )
)
_SUBSCRIBER = c.text("subscriber", "Name of the subscriber")
_AGENT = c.text("publisher_agent", "Publisher agent whose packages these are")
_PACKAGE = c.text("package_id", "Id of the package")
_DECIDED = c.long(
    "decided_ms", "When the subscriber decided it, by its database's clock", c.EPOCH_MS
)
_PACKAGE_OFFSET = c.long("package_offset", "Offset of the package in the package topic")
_PACKAGE_JOURNAL = c.text(
    "package_journal_id", "Identity of the package topic whose offsets are meant"
)

BRONZE = t.StructType(
    [
        c.text("topic", "Name of the topic"),
        *_PLACE,
        c.column("key", t.StringType(), "Key of the record", nullable=True),
        c.column("headers", _HEADERS, "Headers of the record, in their order"),
        c.column("value", t.BinaryType(), "The record's bytes, as they were sent"),
    ]
)
QUARANTINE = t.StructType(
    [
        *BRONZE.fields,
        c.text("reason", "Why it could not be decoded, or `body missing: …`"),
    ]
)
GAPS = t.StructType(
    [
        c.text("topic", "Name of the topic"),
        c.text("journal_id", "Identity of the topic"),
        c.integer("partition", "Partition that lacks records"),
        c.long("first_missing", "First offset that the archive does not have"),
        c.long("next_offset", "First offset after the hole"),
        c.column("accepted_at", t.TimestampType(), "When an archive run noted the hole"),
    ]
)
_RANGE = [
    c.text("range_from", "Of a part of a subtree: the first path that may be in it; else empty"),
    c.text("range_to", "Of a part of a subtree: the path before which it ends; else empty"),
]
PACKAGES = t.StructType(
    [
        *_PLACE,
        _PACKAGE,
        c.text("publisher_agent", "Publisher agent that sent it"),
        c.text("action", "ADD, DELETE, INVALIDATE or TEST"),
        c.texts("paths", "Paths that it is about, without what lies below them"),
        c.texts("deep_paths", "Paths that it is about with all that lies below them"),
        *_RANGE,
        c.text("user", "Who asked for the distribution"),
        c.text("producer", "Producer under which the package is numbered"),
        c.long("epoch", "Epoch of the producer"),
        c.long("sequence", "Number of the package within producer and epoch"),
        c.long("body_length", "Length of the body as stored, compressed", c.BYTES),
        c.long("node_count", "Nodes in the body", "nodes"),
        c.long("accepted_ms", "When the publisher accepted the request, by its clock", c.EPOCH_MS),
        c.text("publisher_instance", "Instance of the publisher that sent it"),
        c.text("package_type", "`packhorse/1`; `packhorse/2` for a part of a subtree"),
        c.text("body_sha256", "SHA-256 of the body as stored, hexadecimal; empty without a body"),
        c.long("content_length", "Length of the body once decompressed", c.BYTES),
        c.column(
            "body_reference",
            t.StringType(),
            "Key of the body in the blob store; null when the record has the body itself",
            nullable=True,
        ),
    ]
)
STATUSES = t.StructType(
    [
        *_PLACE,
        _SUBSCRIBER,
        _AGENT,
        _PACKAGE_OFFSET,
        c.text("status", "IMPORTED, REMOVED, REMOVED_FAILED, SKIPPED, LEFT_OUT or DUPLICATE"),
        _PACKAGE,
        c.long("attempts", "Attempts that the package took there", "attempts"),
        c.text("reason", "Why, of REMOVED_FAILED, SKIPPED, LEFT_OUT and DUPLICATE; else empty"),
        c.text("command_id", "Clear command that removed it, of REMOVED; else empty"),
        _DECIDED,
        c.text("subscriber_instance", "Instance of the subscriber that said so"),
        _PACKAGE_JOURNAL,
    ]
)
COMMAND_STATUSES = t.StructType(
    [
        *_PLACE,
        c.text("command_id", "Id of the command"),
        c.text("subscriber", "Subscriber that it was sent to"),
        _AGENT,
        c.text("state", "SEEN, APPLIED or REJECTED"),
        c.long("removed", "Packages that a clear removed, of APPLIED; else 0", "packages"),
        c.text("reason", "Why, of REJECTED; else empty"),
        _DECIDED,
    ]
)
SUBSCRIPTION = t.StructType(
    [
        c.text("publisher_agent", "Publisher agent that it follows"),
        c.long("offset", "Offset of the last package that it is done with; -1 before the first"),
        c.long("retries", "Failed attempts of the package after `offset`", "attempts"),
        c.text("state", "RUNNING, IDLE, BLOCKED, GAP, PAUSED, … as in the glossary"),
        c.text("last_error", "Why the last attempt failed; empty when none did"),
        c.long("next_attempt_ms", "When the next attempt is due; 0 for none", c.EPOCH_MS),
        c.long("blocked_since_ms", "Since when a package fails; 0 when none does", c.EPOCH_MS),
        c.text("journal_id", "Identity of the package topic; empty before the first position"),
        c.long("epoch", "Epoch of the database's lease"),
        c.long("settled_offset", "Every status up to it is in the journal; -1 before the first"),
        c.long("started_offset", "It began behind this offset; -1 with the first package"),
    ]
)
ANNOUNCEMENTS = t.StructType(
    [
        *_PLACE,
        _SUBSCRIBER,
        c.column("subscriptions", t.ArrayType(SUBSCRIPTION, False), "Its subscriptions, by agent"),
        c.column("editable", t.BooleanType(), "Whether it accepts clears and reports every import"),
        c.long("max_retries", "Attempts after the first; -1 never gives up", "attempts"),
        c.text("endpoint", "URL of the subscriber's own service; may be empty"),
        c.long("announced_ms", "When it was sent, by the subscriber's clock", c.EPOCH_MS),
        c.text("subscriber_instance", "Instance of the subscriber that announced itself"),
    ]
)
COMMANDS = t.StructType(
    [
        *_PLACE,
        c.text("command_id", "Id of the command"),
        c.text("kind", "CLEAR, CONTROL, RESET or RETRY"),
        c.text("subscriber", "Subscriber that it is for"),
        _AGENT,
        c.column("up_to", t.LongType(), "Offset of CLEAR and RESET", nullable=True),
        c.column("desired", t.StringType(), "RUN, PAUSE or STOP of CONTROL", nullable=True),
        c.text("user", "Who issued it"),
        c.long("issued_ms", "When it was issued, by the publisher's clock", c.EPOCH_MS),
        _PACKAGE_JOURNAL,
    ]
)
EVENTS = t.StructType(
    [
        *_PLACE,
        _PACKAGE,
        _AGENT,
        _PACKAGE_OFFSET,
        c.texts("paths", "Paths of the package, without what lies below them"),
        c.texts("deep_paths", "Paths of the package with all that lies below them"),
        c.text("action", "ADD, DELETE, INVALIDATE or TEST"),
        c.texts("imported", "Subscribers that imported it"),
        c.texts("removed", "Subscribers where a command removed it"),
        c.texts("failed", "Subscribers that gave it up"),
        c.texts(
            "skipped",
            "Subscribers that passed it: the golden one lacks it, not for it, or a DUPLICATE",
        ),
        c.texts("away", "Subscribers of the last day that were not live then"),
    ]
)
NODES = t.StructType(
    [
        t.StructField(name, t.StringType(), False)
        for name in ("path", "type", "properties", "binaries")
    ]
)
"""Content: the JSON texts are as Postgres writes jsonb."""
_HOUR = [
    c.column("day", t.DateType(), "Day of `hour` in UTC"),
    c.column("hour", t.TimestampType(), "Begin of the hour, in UTC"),
]
"""The hour in UTC that a measure is about, and its day, by which the tables are partitioned."""


def _latency(of: str) -> list[t.StructField]:
    meanings = {
        "p50": f"Median of the latency, {of}; exact; null without any",
        "p95": "95th percentile of the latency, interpolated; null without any",
        "p99": "99th percentile of the latency, interpolated; null without any",
        "max": "Longest latency; null without any",
    }
    return [
        c.column(f"latency_{which}_ms", t.LongType(), meaning, c.MS, nullable=True)
        for which, meaning in meanings.items()
    ]


DELIVERY = t.StructType(
    [
        _SUBSCRIBER,
        _AGENT,
        *_HOUR,
        c.long("delivered", "Packages imported in the hour", "packages"),
        *_latency("accepted → imported"),
        c.long("bytes", "Bodies of the imported packages as stored", c.BYTES),
        c.long("nodes", "Nodes of the imported packages", "nodes"),
        c.long("attempts", "`delivered` + `failures`", "attempts"),
        c.long("failures", "Failed attempts in the hour", "attempts"),
        c.long("removed", "Packages removed by a command or given up", "packages"),
        c.long(
            "skipped",
            "Packages passed: the golden subscriber did not import, or not for it; no duplicates",
            "packages",
        ),
        c.long(
            "backlog_end",
            "Packages not imported at the end of the hour, or when it last announced itself in it;"
            " 0 when it did not",
            "packages",
        ),
        c.long("blocked_ms", "How long a package that fails held up the others", c.MS),
        c.column("editable", t.BooleanType(), "Whether the subscriber reports every import itself"),
    ]
)
FAILURES = t.StructType(
    [
        _SUBSCRIBER,
        _AGENT,
        *_HOUR,
        c.text("reason", "Error of the attempts; at most 500 characters"),
        c.long("count", "Failed attempts for this reason in the hour", "attempts"),
    ]
)
SLOWEST = t.StructType(
    [
        _SUBSCRIBER,
        _AGENT,
        *_HOUR,
        c.integer("rank", "1 is the slowest of the subscriber, agent and hour; 20 are kept"),
        c.text("path", "First path of the package, deep ones first; at most 500 characters"),
        c.long("paths", "How many paths the package has", "paths"),
        c.long("latency_ms", "Accepted → imported", c.MS),
        _PACKAGE,
        c.long("offset", "Offset of the package in the package topic"),
    ]
)
PUBLISHING = t.StructType(
    [
        c.text("publisher_agent", "Publisher agent that sent the packages"),
        *_HOUR,
        c.long("packages", "Packages that the journal took in the hour", "packages"),
        c.long("adds", "Of these with the action ADD", "packages"),
        c.long("deletes", "Of these with the action DELETE", "packages"),
        c.long("invalidates", "Of these with the action INVALIDATE", "packages"),
        c.long("tests", "Of these with the action TEST", "packages"),
        c.long("bytes", "Their bodies as stored", c.BYTES),
        c.long("nodes", "Their nodes", "nodes"),
        *_latency("accepted → in the journal"),
    ]
)
SUBSCRIPTIONS = t.StructType(
    [
        _SUBSCRIBER,
        _AGENT,
        c.text("journal_id", "Identity of the package topic whose offsets these are"),
        *_HOUR,
        c.long(
            "announced_ms",
            "Its last announcement in the hour, by the journal's clock",
            c.EPOCH_MS,
        ),
        c.long("sequence", "Offset of that announcement in the discovery topic"),
        c.long("offset", "Offset that it announced then"),
        c.long("reached", "Highest offset that it had ever announced"),
        c.long("retries", "Failed attempts of the package after `offset`", "attempts"),
        c.column("blocked", t.BooleanType(), "Whether a package failed in front"),
        c.column("editable", t.BooleanType(), "Whether it reports every import"),
    ]
)
MEASURED = t.StructType(
    [
        c.text("table", "Table of the archive"),
        c.text("table_id", "Its id in Delta"),
        c.long("version", "Version up to which the measures are made"),
        c.long("measured_ms", "When they were made", c.EPOCH_MS),
    ]
)
