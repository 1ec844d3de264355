"""Reading ranges of the package topic below the queue cache."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from packhorse.messaging.api import Journal, JournalUnavailable, Record
from packhorse.messaging.reading import read_to
from packhorse.runtime.metrics import PUBLISHER_CACHE_FETCHES
from packhorse_services.publisher.queues.cache.columns import ColumnSegment
from packhorse_services.publisher.queues.cache.filling import add_rows, rows_of, strides
from packhorse_services.publisher.queues.cache.queue_cache import QueueCache

_BATCH = 500
_CHUNK = 100_000


@dataclass(frozen=True)
class Ranges:
    """Reads ranges of a topic's records without their values, until it is stopped."""

    journal: Journal
    topic: str
    stopping: threading.Event

    def oldest(self) -> int:
        """Return the oldest offset that the log has."""
        return self.journal.bounds(self.topic).oldest

    def batches(
        self, start: int, end: int, max_records: int = _BATCH
    ) -> Iterator[Sequence[Record]]:
        """Yield the records from `start` up to, not including, `end`.

        `start` must be in the log, and the log must reach `end`. Raises `JournalUnavailable`
        unless the end was reached.
        """
        if start >= end:
            return
        with self.journal.reader(self.topic, start, partition=0, values=False) as reader:
            for records in read_to(
                reader, end, max_records=max_records, meanwhile=self._check_stopping
            ):
                if records:
                    yield [record for record in records if record.offset < end]

    def _check_stopping(self) -> None:
        if self.stopping.is_set():
            raise JournalUnavailable("the journal is read no further, for this program ends")


@dataclass
class RangeFetch:
    """Moves the low end of a cache down, one chunk after the other. Used by one thread."""

    ranges: Ranges
    cache: QueueCache
    full: bool = False
    """Whether the last fetch ended for lack of room."""

    def fetch_above(self, offset: int) -> None:
        """Put what lies between `offset` and the cache's low end into the cache, newest first.

        Ends early when half of the cache's bytes are taken: the rest is for the tail to grow. And
        when the cache was trimmed meanwhile, or both would go on for as long as somebody is away.
        """
        while not self.cache.covers(offset):
            room = self.cache.max_bytes // 2 - self.cache.size
            if room <= 0:
                self.full = True
                return
            self.cache.forget_below(self.ranges.oldest())
            end = self.cache.low
            start = max(offset + 1, self.cache.oldest, end - _CHUNK)
            PUBLISHER_CACHE_FETCHES.inc()
            segments, start = self._collect(start, end, room)
            self.cache.prepend(segments, start, end)
            if self.cache.low >= end:
                self.full = self.cache.low == end  # not even one segment fits; else it was trimmed
                return

    def _collect(self, start: int, end: int, room: int) -> tuple[list[ColumnSegment], int]:
        """Return the newest segments of a range that fit, and where they begin."""
        segments: list[ColumnSegment] = []
        agent, size = self.cache.agent.encode(), 0
        for records in self.ranges.batches(start, end):
            sealed = len(segments) - 1
            for some in strides(records):
                add_rows(segments, rows_of(some, agent))
            size += sum(segment.size for segment in segments[max(0, sealed) : -1])
            while size > room and len(segments) > 1:
                gone = segments.pop(0)
                size -= gone.size
                start = gone.last + 1
        if segments:
            segments[-1].seal()
        return segments, start
