"""The journal in this process's memory: for unit tests and for trying things out.

It keeps every promise of the port except outliving the process.
"""

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace

from packhorse.messaging.api import (
    Appended,
    Bounds,
    LogEnd,
    NotAppended,
    OffsetOutOfRange,
    Outgoing,
    Position,
    Reader,
    Record,
    RecordTooLarge,
    Since,
    TopicMissing,
    TopicSpec,
    partition_for,
)
from packhorse.messaging.faults import topic_faults
from packhorse.messaging.memory_log import MemoryLog, MemoryPartition, MemoryTopic

__all__ = ["MemoryJournal", "MemoryLog", "open_memory_journal", "shared_log"]

_SHARED: dict[str, MemoryLog] = {}
_SHARED_LOCK = threading.Lock()


def shared_log(name: str) -> MemoryLog:
    """Return the log that everybody in this process who asks for `name` gets."""
    with _SHARED_LOCK:
        return _SHARED.setdefault(name, MemoryLog())


def open_memory_journal(url: str) -> "MemoryJournal":
    """Return a journal on the shared log that `memory://name` names."""
    return MemoryJournal(shared_log(url.partition("://")[2]))


class MemoryJournal:
    """A `Journal` on a `MemoryLog`; an append is done before `append` returns."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._closed = False

    def append(self, topic: str, record: Outgoing) -> Future[Appended]:
        """Add the record now; the future is done already."""
        future: Future[Appended] = Future()
        try:
            future.set_result(self._append(topic, record))
        except (NotAppended, TopicMissing, RecordTooLarge) as error:
            future.set_exception(error)
        return future

    def _append(self, topic: str, record: Outgoing) -> Appended:
        if self._closed:
            raise NotAppended("the journal is closed; open it again")
        with self._log.changed:
            found = self._log.topic(topic)
            if len(record.value) > found.spec.max_record_bytes:
                raise RecordTooLarge(
                    f"{len(record.value)} bytes are more than the {found.spec.max_record_bytes} "
                    f"that {topic} accepts; put the body in the blob store"
                )
            number = partition_for(record.key, len(found.partitions))
            partition = found.partitions[number]
            offset = partition.bounds.next
            partition.records.append(
                Record(
                    topic,
                    number,
                    offset,
                    time_ms=self._now_ms(partition),
                    key=record.key,
                    headers=dict(record.headers),
                    value=record.value,
                )
            )
            self._log.changed.notify_all()
            return Appended(number, offset)

    def _now_ms(self, partition: MemoryPartition) -> int:
        now = self._log.clock.wall_ms()
        return max(now, partition.records[-1].time_ms) if partition.records else now

    def reader(
        self,
        topic: str,
        start: Position | Mapping[int, Position],
        *,
        partition: int | None = None,
        values: bool = True,
    ) -> "MemoryReader":
        """Open a reader of this very topic: it ends with `TopicMissing` when that is removed."""
        with self._log.changed:
            found = self._log.topic(topic)
            numbers = range(len(found.partitions)) if partition is None else [partition]
            reader = MemoryReader(self._log, topic, found, values)
            for number in numbers:
                wanted = start.get(number, LogEnd.OLDEST) if isinstance(start, Mapping) else start
                reader.seek(wanted, number)
        return reader

    def read_at(self, topic: str, offset: int, partition: int = 0) -> Record | None:
        """Return the record at `offset`, or None."""
        with self._log.changed:
            log = self._log.topic(topic).partition(partition)
            if not log.oldest <= offset < log.bounds.next:
                return None
            return log.records[offset - log.oldest]

    def bounds(
        self,
        topic: str,
        partition: int = 0,
        *,
        after_appends: bool = False,  # noqa: ARG002 - every append is over when it returns
    ) -> Bounds:
        """Return the partition's bounds."""
        with self._log.changed:
            return self._log.topic(topic).partition(partition).bounds

    def offset_at(self, topic: str, time_ms: int, partition: int = 0) -> int:
        """Return the first offset whose record is not older than `time_ms`."""
        with self._log.changed:
            return self._log.topic(topic).partition(partition).since(time_ms)

    def truncate(self, topic: str, before: int, partition: int = 0) -> None:
        """Remove every record below `before`. Raises `OffsetOutOfRange` beyond the end."""
        with self._log.changed:
            log = self._log.topic(topic).partition(partition)
            if before > log.bounds.next:
                raise OffsetOutOfRange(topic, partition, before, log.bounds)
            log.truncate(before)

    def partitions(self, topic: str) -> int:
        """Return how many partitions the topic has."""
        with self._log.changed:
            return len(self._log.topic(topic).partitions)

    def partition_of(self, topic: str, key: str) -> int:
        """Return the partition of `key`."""
        with self._log.changed:
            return partition_for(key, len(self._log.topic(topic).partitions))

    def identity(self, topic: str) -> str:
        """Return the topic's creation id."""
        with self._log.changed:
            return self._log.topic(topic).identity

    def create_topics(self, topics: Sequence[TopicSpec]) -> None:
        """Create the topics that do not exist."""
        with self._log.changed:
            for spec in topics:
                self._log.topics.setdefault(spec.name, MemoryTopic(spec))

    def check_topics(self, topics: Sequence[TopicSpec]) -> list[str]:
        """Return one sentence for each fault."""
        with self._log.changed:
            found = {name: topic.spec for name, topic in self._log.topics.items()}
        return topic_faults(topics, found)

    def retention_ms(self, topic: str) -> int:
        """Return for how long the topic keeps records."""
        with self._log.changed:
            return self._log.topic(topic).spec.retention_ms

    def retain(self, topic: str, retention_ms: int) -> None:
        """Let the topic keep records for so long from now on."""
        with self._log.changed:
            found = self._log.topic(topic)
            found.spec = replace(found.spec, retention_ms=retention_ms)

    def enforce_retention(self) -> None:
        """Remove what is older than each topic's retention, by the log's clock."""
        with self._log.changed:
            for topic in self._log.topics.values():
                if topic.spec.retention_ms >= 0:
                    limit = self._log.clock.wall_ms() - topic.spec.retention_ms
                    for partition in topic.partitions:
                        partition.truncate(partition.since(limit))

    def close(self, timeout: float = 10.0) -> None:  # noqa: ARG002 - nothing is ever pending
        """Refuse further appends; the log stays for those who share it."""
        self._closed = True


class MemoryReader(Reader):
    """A `Reader` of some partitions of one topic."""

    def __init__(self, log: MemoryLog, name: str, topic: MemoryTopic, values: bool) -> None:
        self._log, self._name, self._topic, self._values = log, name, topic, values
        self._positions: dict[int, int] = {}
        self._woken = False

    def poll(
        self, timeout: float, *, max_records: int = 500, max_bytes: int = 8 * 1024 * 1024
    ) -> Sequence[Record]:
        """Return the next records; an idle partition costs nothing."""
        with self._log.changed:
            self._log.changed.wait_for(lambda: self._has_something() or self._woken, timeout)
            self._woken = False
            records: list[Record] = []
            for number in list(self._positions):
                left = max_bytes - sum(len(record.value) for record in records)
                records += self._take(number, max_records - len(records), left, not records)
            return records

    def _has_something(self) -> bool:
        """Whether a partition has records; raises what makes reading on impossible."""
        if self._log.topics.get(self._name) is not self._topic:
            raise TopicMissing(f"topic {self._name} is gone or another one; open a new reader")
        for number, position in self._positions.items():
            bounds = self._topic.partitions[number].bounds
            if not bounds.oldest <= position <= bounds.next:
                raise OffsetOutOfRange(self._name, number, position, bounds)
        return any(
            position < self._topic.partitions[number].bounds.next
            for number, position in self._positions.items()
        )

    def _take(self, number: int, count: int, size: int, first: bool) -> list[Record]:
        """Return and pass what fits; `first` lets one record through whatever its size."""
        partition, position = self._topic.partitions[number], self._positions[number]
        start = position - partition.oldest
        taken: list[Record] = []
        for record in partition.records[start : start + count]:
            size -= len(record.value) if self._values else 0
            if size < 0 and not (first and not taken):
                break
            taken.append(record if self._values else replace(record, value=b""))
        if taken:
            # Back in as the last, so that the next poll begins with another partition.
            del self._positions[number]
            self._positions[number] = position + len(taken)
        return taken

    def wake(self) -> None:
        """Let a poll return without waiting."""
        with self._log.changed:
            self._woken = True
            self._log.changed.notify_all()

    def seek(self, position: Position, partition: int = 0) -> None:
        """Continue at `position`; one that is out of range is reported at the next poll."""
        with self._log.changed:
            log = self._topic.partition(partition)
            match position:
                case LogEnd.OLDEST:
                    self._positions[partition] = log.oldest
                case LogEnd.NEXT:
                    self._positions[partition] = log.bounds.next
                case Since(time_ms):
                    self._positions[partition] = log.since(time_ms)
                case int():
                    self._positions[partition] = position

    def position(self, partition: int = 0) -> int:
        """Return the offset of the next record."""
        return self._positions[partition]

    def close(self) -> None:
        """Forget the positions."""
        self._positions.clear()
