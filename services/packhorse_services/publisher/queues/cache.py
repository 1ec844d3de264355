"""The one copy that a publisher process keeps of its agent's packages: metadata only (R17).

A queue is a view: what lies above an offset. The cache holds every package from `low` to `next`;
a tail reader moves `next` up, ranges fetched on demand move `low` down, trimming moves it up.
"""

import threading
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from packhorse.messaging.api import Record
from packhorse.runtime.metrics import PUBLISHER_CACHE_BYTES, PUBLISHER_CACHE_ENTRIES
from packhorse_services.publisher.queues.columns import QueueEntry, Segment, add_record


@dataclass(frozen=True, slots=True)
class QueueView:
    """A queue at one moment: how long it is, its first entry, and a page of it."""

    length: int
    head: QueueEntry | None
    page: Sequence[QueueEntry]


class QueueCache:
    """Entries of one publisher agent in offset order. Any thread may use it."""

    def __init__(self, agent: str, next_offset: int = 0) -> None:
        self.agent = agent
        self._agent = agent.encode()
        self._lock = threading.Lock()
        self._segments: list[Segment] = []
        self._firsts: list[int] = []
        self._before: list[int] = []
        self._bytes_before: list[int] = []
        self._sealed_bytes = 0
        self._low = self._next = next_offset
        self._oldest = 0

    @property
    def low(self) -> int:
        """Everything from this offset on is here."""
        return self._low

    @property
    def next(self) -> int:
        """Everything below this offset has been seen."""
        return self._next

    @property
    def oldest(self) -> int:
        """The oldest offset that the log still has."""
        return self._oldest

    def covers(self, offset: int) -> bool:
        """Tell whether all packages above `offset` that the log still has are here."""
        return max(offset + 1, self._oldest) >= self._low

    def reset(self, next_offset: int) -> None:
        """Forget everything: the log is another one, or was cut at its end."""
        with self._lock:
            self._segments, self._oldest = [], 0
            self._low = self._next = next_offset
            self._index()

    def extend(self, records: Iterable[Record]) -> None:
        """Append what the tail reader read; records that are here already change nothing."""
        with self._lock:
            before = len(self._segments)
            for record in records:
                if record.offset >= self._next:
                    add_record(self._segments, record, self._agent)
                    self._next = record.offset + 1
            if len(self._segments) != before:
                self._index()
            self._measure()

    def prepend(self, segments: list[Segment], start: int, end: int) -> None:
        """Put the range from `start` up to, not including, `end` before what is here.

        Nothing happens when the cache does not begin at `end` any more.
        """
        with self._lock:
            if end == self._low and start < end:
                self._segments[:0] = segments
                self._low = start
                self._index()
                self._measure()

    def trim(self, below: int) -> None:
        """Let go of entries below `below`, in whole segments."""
        with self._lock:
            self._trim(below)

    def forget_below(self, oldest: int) -> None:
        """Show nothing below `oldest` any more: the log has forgotten it (R15)."""
        with self._lock:
            self._oldest = max(self._oldest, oldest)
            self._trim(self._oldest)

    def length(self, after: int) -> int | None:
        """Return how many packages lie above `after`; None when not all of them are here."""
        with self._lock:
            return self._length(after) if self.covers(after) else None

    def backlog(self, after: int) -> tuple[int, int]:
        """Return how many packages above `after` are here, and the bytes of their bodies.

        Costs two bisections and a sum inside one segment. All there are, if `covers(after)`.
        """
        with self._lock:
            start = self._start(after)
            number = max(0, bisect_right(self._firsts, start) - 1)
            if number >= len(self._segments):
                return 0, 0
            inside = self._segments[number].index_of(start)
            below = self._bytes_before[number] + self._segments[number].body_bytes_below(inside)
            total = self._bytes_before[-1] + self._segments[-1].body_bytes
            return self._total() - self._before[number] - inside, total - below

    def view(self, after: int, limit: int, *, skip_to: int = -1) -> QueueView | None:
        """Return the queue above `after`: a page of it, oldest first, that begins at `skip_to`.

        None when not all of it is here.
        """
        with self._lock:
            if not self.covers(after):
                return None
            start = self._start(after)
            page = self._page(max(start, skip_to), limit)
            head = page[:1] if page and skip_to <= start else self._page(start, 1)
            return QueueView(self._length(after), head[0] if head else None, page)

    def _length(self, after: int) -> int:
        return self._total() - self._rank(self._start(after))

    def _page(self, start: int, limit: int) -> list[QueueEntry]:
        rank = self._rank(start)
        number = max(0, bisect_right(self._before, rank) - 1)
        entries: list[QueueEntry] = []
        while number < len(self._segments) and len(entries) < limit:
            segment, before = self._segments[number], self._before[number]
            first = max(0, rank - before)
            until = min(len(segment), first + limit - len(entries))
            entries += map(segment.entry, range(first, until))
            number += 1
        return entries

    def newest(self) -> int | None:
        """Return the offset of the newest package here."""
        with self._lock:
            last = self._segments[-1].last if self._segments else None
            return last if last is not None and last >= self._oldest else None

    def _start(self, after: int) -> int:
        return max(after + 1, self._oldest)

    def _trim(self, below: int) -> None:
        gone = 0
        while gone < len(self._segments) and self._segments[gone].last < below:
            gone += 1
        if gone:
            self._low = self._segments[gone - 1].last + 1
            del self._segments[:gone]
            self._index()
            self._measure()

    def _rank(self, offset: int) -> int:
        """Return how many entries lie below `offset`."""
        number = bisect_right(self._firsts, offset) - 1
        if number < 0:
            return 0
        return self._before[number] + self._segments[number].index_of(offset)

    def _total(self) -> int:
        return self._before[-1] + len(self._segments[-1]) if self._segments else 0

    def _index(self) -> None:
        self._firsts = [segment.first for segment in self._segments]
        lengths = [len(segment) for segment in self._segments[:-1]]
        self._before = list(accumulate(lengths, initial=0)) if self._segments else []
        bodies = (segment.body_bytes for segment in self._segments[:-1])
        self._bytes_before = list(accumulate(bodies, initial=0))
        self._sealed_bytes = sum(segment.size for segment in self._segments[:-1])

    @property
    def size(self) -> int:
        """Bytes that the entries take, about."""
        return self._sealed_bytes + (self._segments[-1].size if self._segments else 0)

    def _measure(self) -> None:
        PUBLISHER_CACHE_ENTRIES.set(self._total())
        PUBLISHER_CACHE_BYTES.set(self.size)
