"""The journal's promises (R1-R4), whatever backend keeps it.

A backend is chosen by URL in `packhorse.messaging.open`; one contract suite holds all of them to
this page. The journal knows bytes, keys and headers, and nothing of what they mean.
"""

import enum
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol, Self
from zlib import crc32

from packhorse.errors import Permanent, Transient


class OffsetOutOfRange(Permanent):
    """The wanted offset is no longer in the log, or lies beyond its end (R2)."""

    def __init__(self, topic: str, partition: int, wanted: int, bounds: "Bounds") -> None:
        super().__init__(
            f"offset {wanted} of {topic}/{partition} is not in the log, which holds "
            f"{bounds.oldest} to {bounds.next - 1}; start again at an offset inside it"
        )
        self.topic, self.partition, self.wanted, self.bounds = topic, partition, wanted, bounds


class JournalUnavailable(Transient):
    """The backend can't be reached; nothing was read or changed by this call."""


class NotAppended(Transient):
    """The record is certainly not in the log; appending it again is safe (R3)."""


class AppendUnknown(Transient):
    """It is not known whether the record is in the log; look for it before trying again (R26)."""


class RecordTooLarge(Permanent):
    """The record is larger than the topic accepts; put its body in the blob store (R7)."""


class TopicMissing(Permanent):
    """The topic does not exist; create it with `packhorse topics create`."""


def topic_missing(topic: str) -> TopicMissing:
    """Return the error that says so."""
    return TopicMissing(f"topic {topic} does not exist; create it with `packhorse topics create`")


def partition_for(key: str | None, partitions: int) -> int:
    """Return which partition a key belongs to, the same on every backend, for ever.

    It is CRC-32 of the UTF-8 key modulo `partitions`, as librdkafka's `consistent` does.
    Without a key it is partition 0.
    """
    return 0 if key is None else crc32(key.encode()) % partitions


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a partition holds: offsets from `oldest` up to, not including, `next`."""

    oldest: int
    next: int


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to append. `key` chooses the partition; without one it is partition 0."""

    value: bytes
    headers: Mapping[str, bytes] = field(default_factory=dict)
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a record went. It survives a crash of this process and of the backend (R3)."""

    partition: int
    offset: int


@dataclass(slots=True)  # not frozen: that would triple the cost of making one
class Record:
    """A record as every reader sees it. `time_ms` is the backend's clock at the append (R28).

    `value` is empty when the reader asked for no values. Nobody changes a record.

    `damage` says why the backend can't give what was appended at this offset: key, headers and
    value are then empty. Reading goes on behind it (R32).
    """

    topic: str
    partition: int
    offset: int
    time_ms: int
    key: str | None
    headers: Mapping[str, bytes]
    value: bytes
    damage: str = ""


def damaged(topic: str, partition: int, offset: int, reason: str) -> Record:
    """Return what stands for a record that can't be read; nobody knows its time."""
    why = f"the journal can't read offset {offset} of {topic}: {reason}"
    return Record(topic, partition, offset, 0, None, {}, b"", why)


class LogEnd(enum.Enum):
    """The two ends of a partition."""

    OLDEST = "oldest"
    NEXT = "next"


@dataclass(frozen=True, slots=True)
class Since:
    """The first record at or after a time, in milliseconds of the backend's clock."""

    time_ms: int


Position = int | LogEnd | Since
"""Where a reader starts: the offset of the next record to read, an end, or a time."""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """What packhorse needs of a topic; `retention_ms` -1 keeps everything."""

    name: str
    partitions: int = 1
    retention_ms: int = 7 * 24 * 3600 * 1000
    max_record_bytes: int = 1024 * 1024


class Reader(Protocol):
    """A cursor over one partition, or over all partitions of a topic. Used by one thread."""

    def poll(
        self, timeout: float, *, max_records: int = 500, max_bytes: int = 8 * 1024 * 1024
    ) -> Sequence[Record]:
        """Return the next records, in offset order within each partition (R1).

        Waits at most `timeout` seconds for the first one and returns an empty sequence after
        that. Stops at `max_records`, or once `max_bytes` of values are in hand; a record larger
        than `max_bytes` still comes, alone.

        Raises:
            OffsetOutOfRange: the next offset is gone; the position does not move.
            JournalUnavailable: nothing was consumed; poll again later.
        """
        ...

    def wake(self) -> None:
        """Let the poll that waits, or else the next one, return without waiting; for any thread."""
        ...

    def seek(self, position: Position, partition: int = 0) -> None:
        """Continue at `position` of `partition`. Raises `OffsetOutOfRange` at once or at poll."""
        ...

    def position(self, partition: int = 0) -> int:
        """Return the offset below which `partition` holds nothing that is still to be returned.

        It passes offsets without a record, such as markers of somebody's transaction, once a poll
        has seen that nothing follows them. So it reaches `Bounds.next`, which the last record's
        offset may never do.
        """
        ...

    def close(self) -> None:
        """Close the reader, and no other one; polling afterwards is a bug."""
        ...

    def __enter__(self) -> Self:
        """Return the reader itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the reader."""
        self.close()


class Journal(Protocol):
    """A connection to one journal. Safe to use from several threads; readers are not."""

    def append(self, topic: str, record: Outgoing) -> Future[Appended]:
        """Add a record at the end of its partition and return at once.

        Records that one thread appends to one partition enter the log in that order. The future
        fails with `NotAppended`, `AppendUnknown`, `RecordTooLarge` or `TopicMissing`: after any
        failure of a batch the caller looks into the log before it appends the rest (R26).
        """
        ...

    def reader(
        self,
        topic: str,
        start: Position | Mapping[int, Position],
        *,
        partition: int | None = None,
        values: bool = True,
    ) -> Reader:
        """Open a reader of `partition`, or of all partitions when that is None.

        `start` may name a position for each partition; those it lacks start at the oldest.
        With `values` false the backend leaves bodies out where it can (R17).
        """
        ...

    def read_at(self, topic: str, offset: int, partition: int = 0) -> Record | None:
        """Return the record at exactly `offset`, or None when there is none in the log."""
        ...

    def bounds(self, topic: str, partition: int = 0, *, after_appends: bool = False) -> Bounds:
        """Return the partition's bounds as they are now. Raises `JournalUnavailable`.

        With `after_appends` a record that somebody has sent who then ended is below `next`, or
        will never be in the log: whoever takes over from him asks so before it appends (R26).
        Kafka can't know of what its broker has not read from the network yet.
        """
        ...

    def offset_at(self, topic: str, time_ms: int, partition: int = 0) -> int:
        """Return the first offset whose record is not older than `time_ms`, else the next one."""
        ...

    def truncate(self, topic: str, before: int, partition: int = 0) -> None:
        """Remove every record below `before`; what is above does not change (R4)."""
        ...

    def partitions(self, topic: str) -> int:
        """Return how many partitions the topic has: a number that never changes."""
        ...

    def partition_of(self, topic: str, key: str) -> int:
        """Return the partition that records with `key` go to."""
        ...

    def identity(self, topic: str) -> str:
        """Return the topic's identity: another one when the topic was created anew (R24)."""
        ...

    def create_topics(self, topics: Sequence[TopicSpec]) -> None:
        """Create the topics that do not exist; existing ones are left as they are."""
        ...

    def check_topics(self, topics: Sequence[TopicSpec]) -> list[str]:
        """Return one sentence for each thing that is wrong with a topic, and how to mend it."""
        ...

    def retention_ms(self, topic: str) -> int:
        """Return for how long the topic keeps records, in milliseconds; -1 is for ever."""
        ...

    def retain(self, topic: str, retention_ms: int) -> None:
        """Let the topic keep records for so long from now on; what is gone stays gone."""
        ...

    def enforce_retention(self) -> None:
        """Remove what is older than each topic's retention, where the backend does not."""
        ...

    def close(self, timeout: float = 10.0) -> None:
        """Wait for pending appends up to `timeout` seconds; fail the rest as `AppendUnknown`."""
        ...
