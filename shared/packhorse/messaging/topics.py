"""What packhorse needs of its five topics, ready for `create_topics` and `check_topics`."""

from packhorse.messaging.api import TopicSpec
from packhorse.wire.topics import (
    DISCOVERY_RETENTION_MS,
    MAX_RECORD_BYTES,
    PACKAGE_RETENTION_MS,
    Topics,
)


def appended_by(program: str, topics: Topics) -> tuple[str, ...]:
    """Return the topics that a program appends to; every other program only reads."""
    return {
        "publisher": (topics.package, topics.command, topics.event),
        "subscriber": (topics.status, topics.discovery),
    }.get(program, ())


def standard_topics(topics: Topics, *, partitions: int = 4) -> list[TopicSpec]:
    """Return the five topics; `partitions` is how many the keyed ones are divided into.

    Nothing is kept for less time than the packages it speaks of, announcements excepted, which
    come again every 10 s.
    """
    keyed, week = partitions, PACKAGE_RETENTION_MS
    return [
        TopicSpec(topics.package, 1, week, MAX_RECORD_BYTES),
        TopicSpec(topics.status, 1, week, MAX_RECORD_BYTES),
        TopicSpec(topics.discovery, keyed, DISCOVERY_RETENTION_MS, MAX_RECORD_BYTES),
        TopicSpec(topics.command, keyed, week, MAX_RECORD_BYTES),
        TopicSpec(topics.event, keyed, week, MAX_RECORD_BYTES),
    ]
