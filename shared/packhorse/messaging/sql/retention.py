"""Removing the old: `oldest` moves up at once, the segments below it are dropped afterwards.

Two transactions on purpose: a drop may have to wait for a long query, and an append must not wait
with it. Every step can be repeated, by anybody, at any time.
"""

from psycopg import Connection

from packhorse.messaging.api import OffsetOutOfRange
from packhorse.messaging.sql.catalogue import SqlTopic, find_partition, find_partitions, find_topics
from packhorse.messaging.sql.records import offset_at
from packhorse.messaging.sql.segments import drop_forgotten


def truncate(connection: Connection, topic: SqlTopic, number: int, before: int) -> None:
    """Forget every record below `before`. Raises `OffsetOutOfRange` beyond the end."""
    partition = find_partition(connection, topic, number)
    if before > partition.bounds.next:
        raise OffsetOutOfRange(topic.name, number, before, partition.bounds)
    if before > partition.bounds.oldest:
        connection.execute(
            "UPDATE journal.partition SET oldest = greatest(oldest, %s) WHERE id = %s",
            (before, partition.id),
        )
    drop_forgotten(connection, partition.id)


def enforce_retention(connection: Connection) -> None:
    """Forget what is older than its topic's retention, by the database's clock (R28)."""
    [(now_ms,)] = connection.execute(
        "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    ).fetchall()
    for topic in find_topics(connection).values():
        if topic.spec.retention_ms < 0:
            continue
        for number, partition in find_partitions(connection, topic).items():
            limit = now_ms - topic.spec.retention_ms
            truncate(connection, topic, number, offset_at(connection, partition, limit))
