"""Topics in this process's memory, and the lock that guards them."""

import threading
import uuid
from bisect import bisect_left

from packhorse.clock import Clock, SystemClock
from packhorse.messaging.api import Bounds, Record, TopicMissing, TopicSpec, topic_missing


class MemoryPartition:
    """One ordered log; the caller holds the log's lock."""

    def __init__(self) -> None:
        self.oldest = 0
        self.records: list[Record] = []

    @property
    def bounds(self) -> Bounds:
        """Where the log begins and ends."""
        return Bounds(self.oldest, self.oldest + len(self.records))

    def since(self, time_ms: int) -> int:
        """Return the first offset whose record is not older than `time_ms`."""
        return self.oldest + bisect_left(self.records, time_ms, key=lambda record: record.time_ms)

    def truncate(self, before: int) -> None:
        """Remove every record below `before`."""
        if before > self.oldest:
            del self.records[: before - self.oldest]
            self.oldest = before


class MemoryTopic:
    """A topic until it is removed; one that is made anew is another one."""

    def __init__(self, spec: TopicSpec) -> None:
        self.spec = spec
        self.identity = str(uuid.uuid4())
        self.partitions = [MemoryPartition() for _ in range(spec.partitions)]

    def partition(self, number: int) -> MemoryPartition:
        """Return a partition. Raises `TopicMissing`."""
        if not 0 <= number < len(self.partitions):
            raise TopicMissing(f"topic {self.spec.name} has no partition {number}")
        return self.partitions[number]


class MemoryLog:
    """Topics and the lock that guards them; several `MemoryJournal`s may share one."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self.changed = threading.Condition()
        self.topics: dict[str, MemoryTopic] = {}

    def topic(self, name: str) -> MemoryTopic:
        """Return a topic; the caller holds the lock. Raises `TopicMissing`."""
        if name not in self.topics:
            raise topic_missing(name)
        return self.topics[name]

    def remove_topic(self, name: str) -> None:
        """Forget a topic; its readers find out at their next poll."""
        with self.changed:
            del self.topics[name]
            self.changed.notify_all()
