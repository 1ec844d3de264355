"""What packhorse needs of its five topics, ready for `create_topics` and `check_topics`."""

from collections.abc import Mapping

from packhorse.messaging.api import TopicSpec
from packhorse.messaging.faults import how_long
from packhorse.wire.topics import (
    DISCOVERY_RETENTION_MS,
    MAX_RECORD_BYTES,
    PACKAGE_RETENTION_HOURS,
    Topics,
)


def appended_by(program: str, topics: Topics) -> tuple[str, ...]:
    """Return the topics that a program appends to; every other program only reads."""
    return {
        "publisher": (topics.package, topics.command, topics.event),
        "subscriber": (topics.status, topics.discovery),
    }.get(program, ())


def standard_topics(
    topics: Topics, *, partitions: int = 4, kept_hours: float = PACKAGE_RETENTION_HOURS
) -> list[TopicSpec]:
    """Return the five topics; `partitions` is how many the keyed ones are divided into.

    Packages are kept for `kept_hours`, and nothing for less time than the packages it speaks of,
    announcements excepted, which come again every 10 s.
    """
    keyed, kept_ms = partitions, int(kept_hours * 3600 * 1000)
    return [
        TopicSpec(topics.package, 1, kept_ms, MAX_RECORD_BYTES),
        TopicSpec(topics.status, 1, kept_ms, MAX_RECORD_BYTES),
        TopicSpec(topics.discovery, keyed, DISCOVERY_RETENTION_MS, MAX_RECORD_BYTES),
        TopicSpec(topics.command, keyed, kept_ms, MAX_RECORD_BYTES),
        TopicSpec(topics.event, keyed, kept_ms, MAX_RECORD_BYTES),
    ]


def retention_faults(topics: Topics, found_ms: Mapping[str, int]) -> list[str]:
    """Return a sentence for each topic that keeps its records for less time than packages are kept.

    `found_ms` is the retention of each topic by its name, in milliseconds; -1 is for ever.
    """
    packages = found_ms[topics.package]
    return [
        f"topic {name} keeps records for {found_ms[name]} ms, and packages, of which they speak, "
        f"are kept for {packages} ms; `packhorse topics retention {part}` changes it"
        for part, name in topics.by_part().items()
        if part not in ("package", "discovery") and how_long(found_ms[name]) < how_long(packages)
    ]
