"""The `Journal` on PostgreSQL: appends go to one thread, which shares sessions with readers."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager

from psycopg import Connection

from packhorse.db.rows import now_ms
from packhorse.messaging.api import (
    Appended,
    Bounds,
    LogEnd,
    OffsetOutOfRange,
    Outgoing,
    Position,
    Record,
    TopicSpec,
    partition_for,
)
from packhorse.messaging.faults import topic_faults
from packhorse.messaging.sql import catalogue
from packhorse.messaging.sql.appender import SqlAppender
from packhorse.messaging.sql.catalogue import (
    SqlPartition,
    SqlTopic,
    find_partition,
    find_partitions,
    find_topics,
)
from packhorse.messaging.sql.group import APPENDER_TIMEOUTS, GroupWriter
from packhorse.messaging.sql.hints import JournalListener
from packhorse.messaging.sql.reader import SqlReader
from packhorse.messaging.sql.records import offset_at, offset_of, read_at
from packhorse.messaging.sql.segments import DEFAULT_LIMITS, SegmentLimits, drop_forgotten
from packhorse.messaging.sql.session import Sessions


class SqlJournal:
    """A `Journal` in one database; connects when first used."""

    def __init__(self, url: str, client_name: str, limits: SegmentLimits = DEFAULT_LIMITS) -> None:
        self._sessions = Sessions(url, client_name, APPENDER_TIMEOUTS)
        self._hints = JournalListener(url, client_name)
        self._appender = SqlAppender(GroupWriter(self._sessions, limits))

    def append(self, topic: str, record: Outgoing) -> Future[Appended]:
        """Queue the record for the next group."""
        return self._appender.submit(topic, record)

    def reader(
        self,
        topic: str,
        start: Position | Mapping[int, Position],
        *,
        partition: int | None = None,
        values: bool = True,
    ) -> SqlReader:
        """Open a reader of this very topic: it ends with `TopicMissing` when that is removed."""
        with self._sessions.use() as connection:
            found = catalogue.find_topic(connection, topic)
            if partition is None:
                states = catalogue.find_partitions(connection, found)
            else:
                states = {partition: catalogue.find_partition(connection, found, partition)}
            positions = {
                number: offset_of(connection, _start_of(start, number), state)
                for number, state in states.items()
            }
        return SqlReader(self._sessions, self._hints, found, positions, values)

    def read_at(self, topic: str, offset: int, partition: int = 0) -> Record | None:
        """Return the record at `offset`, or None."""
        with self._looking_at(topic, partition) as (connection, found, state):
            return read_at(connection, found, partition, state, offset)

    def bounds(self, topic: str, partition: int = 0, *, after_appends: bool = False) -> Bounds:
        """Return the partition's bounds; `after_appends` waits for a commit that goes on."""
        with self._sessions.use() as connection:
            return catalogue.bounds_of(connection, topic, partition, after_appends=after_appends)

    def offset_at(self, topic: str, time_ms: int, partition: int = 0) -> int:
        """Return the first offset whose record is not older than `time_ms`."""
        with self._looking_at(topic, partition) as (connection, _, state):
            return offset_at(connection, state, time_ms)

    def truncate(self, topic: str, before: int, partition: int = 0) -> None:
        """Forget every record below `before`; space comes back a whole segment at a time."""
        with self._sessions.use() as connection:
            found = catalogue.find_topic(connection, topic)
            truncate(connection, found, partition, before)

    def partitions(self, topic: str) -> int:
        """Return how many partitions the topic has."""
        with self._sessions.use() as connection:
            return catalogue.find_topic(connection, topic).spec.partitions

    def partition_of(self, topic: str, key: str) -> int:
        """Return the partition of `key`."""
        return partition_for(key, self.partitions(topic))

    def identity(self, topic: str) -> str:
        """Return the journal's id and the topic's creation id."""
        with self._sessions.use() as connection:
            return catalogue.find_topic(connection, topic).identity

    def create_topics(self, topics: Sequence[TopicSpec]) -> None:
        """Create the topics that do not exist, all or none."""
        with self._sessions.use() as connection:
            catalogue.create_topics(connection, topics)

    def check_topics(self, topics: Sequence[TopicSpec]) -> list[str]:
        """Return one sentence for each fault, those of the server included."""
        with self._sessions.use() as connection:
            found = catalogue.find_topics(connection, [spec.name for spec in topics])
            faults = catalogue.server_faults(connection)
        return faults + topic_faults(topics, {name: found[name].spec for name in found})

    def retention_ms(self, topic: str) -> int:
        """Return for how long the topic keeps records."""
        with self._sessions.use() as connection:
            return catalogue.find_topic(connection, topic).spec.retention_ms

    def retain(self, topic: str, retention_ms: int) -> None:
        """Let the topic keep records for so long from now on."""
        with self._sessions.use() as connection:
            catalogue.retain(connection, topic, retention_ms)

    def enforce_retention(self) -> None:
        """Remove what is older than each topic's retention, by the database's clock."""
        with self._sessions.use() as connection:
            enforce_retention(connection)

    def close(self, timeout: float = 10.0) -> None:
        """Append what waits, then close every connection."""
        self._appender.close(timeout)
        self._hints.close()
        self._sessions.close()

    @contextmanager
    def _looking_at(
        self, topic: str, number: int
    ) -> Iterator[tuple[Connection, SqlTopic, SqlPartition]]:
        with self._sessions.use() as connection:
            found = catalogue.find_topic(connection, topic)
            yield connection, found, catalogue.find_partition(connection, found, number)


def _start_of(start: Position | Mapping[int, Position], number: int) -> Position:
    return start.get(number, LogEnd.OLDEST) if isinstance(start, Mapping) else start


# Two transactions on purpose: a drop may have to wait for a long query, and an append must not
# wait with it. Every step can be repeated, by anybody, at any time.
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
    now = now_ms(connection)
    for topic in find_topics(connection).values():
        if topic.spec.retention_ms < 0:
            continue
        for number, partition in find_partitions(connection, topic).items():
            limit = now - topic.spec.retention_ms
            truncate(connection, topic, number, offset_at(connection, partition, limit))
