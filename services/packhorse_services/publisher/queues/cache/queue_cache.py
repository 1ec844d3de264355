"""The one copy that a publisher process keeps of its agent's packages: metadata only (R17).

A queue is a view: what lies above an offset. The cache holds every package from `low` to `next`;
a tail reader moves `next` up, ranges fetched on demand move `low` down, trimming and the bound on
its bytes move it up.
"""

import threading
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from packhorse.messaging.api import Record
from packhorse.runtime.metrics import PUBLISHER_CACHE_BYTES, PUBLISHER_CACHE_ENTRIES
from packhorse_services.publisher.queues.cache.columns import ColumnSegment, QueueEntry
from packhorse_services.publisher.queues.cache.filling import add_rows, rows_of, strides
from packhorse_services.publisher.queues.cache.filters import ALL, EntryFilter
from packhorse_services.publisher.queues.cache.scanning import QueuePage, scan

_DEFAULT_BYTES = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class QueueLength:
    """How long a queue is: exactly known when both are the same."""

    at_least: int
    """What is in the cache."""
    at_most: int
    """The same, if every offset below the cache that the log still has is such a package."""

    @property
    def length(self) -> int | None:
        """The length, None while it is not known exactly."""
        return self.at_least if self.at_least == self.at_most else None


@dataclass(frozen=True, slots=True)
class QueueView:
    """A queue at one moment: its first entry, and a page of it."""

    head: QueueEntry | None
    page: QueuePage


class QueueCache:
    """Entries of one publisher agent in offset order. Any thread may use it."""

    def __init__(
        self, agent: str, next_offset: int = 0, *, max_bytes: int = _DEFAULT_BYTES
    ) -> None:
        self.agent, self.max_bytes = agent, max_bytes
        self._agent = agent.encode()
        self._lock = threading.Lock()
        self._segments: list[ColumnSegment] = []
        self._firsts: list[int] = []
        self._before: list[int] = []
        self._bytes_before: list[int] = []
        self._sealed_bytes = 0
        self._low = self._next = next_offset
        self._oldest = 0
        self._gone = 0
        self.filling = 0
        """Another number since it has forgotten everything: positions began anew."""

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

    @property
    def size(self) -> int:
        """Bytes that the entries take, about."""
        return self._sealed_bytes + (self._segments[-1].size if self._segments else 0)

    def covers(self, offset: int) -> bool:
        """Return whether all packages above `offset` that the log still has are here."""
        return max(offset + 1, self._oldest) >= self._low

    def reset(self, next_offset: int) -> None:
        """Forget everything: the log is another one, or was cut at its end."""
        with self._lock:
            self._segments, self._oldest = [], 0
            self._low = self._next = next_offset
            self._gone, self.filling = 0, self.filling + 1
            self._index()

    def extend(self, records: Sequence[Record]) -> None:
        """Append what the tail reader read; records that are here already change nothing.

        Readers wait for the lock, so it is never held for long.
        """
        for some in strides(records):
            rows = rows_of(some, self._agent)
            with self._lock:
                before = len(self._segments)
                seen, self._next = self._next, max(self._next, some[-1].offset + 1)
                if some[0].offset < seen:
                    rows = [row for row in rows if row[0].offset >= seen]
                add_rows(self._segments, rows)
                if len(self._segments) != before:
                    self._index()
                self._shrink()
        self._measure()

    def prepend(self, segments: list[ColumnSegment], start: int, end: int) -> None:
        """Put the range from `start` up to, not including, `end` before what is here.

        Nothing happens when the cache does not begin at `end` any more.
        """
        with self._lock:
            if end == self._low and start < end:
                self._segments[:0] = segments
                self._gone -= sum(map(len, segments))
                self._low = start
                self._index()
                self._shrink()
                self._measure()

    def trim(self, below: int) -> None:
        """Remove entries below `below`, in whole segments."""
        with self._lock:
            self._trim(below)

    def forget_below(self, oldest: int) -> None:
        """Show nothing below `oldest` any more: the log has forgotten it (R15)."""
        with self._lock:
            self._oldest = max(self._oldest, oldest)
            self._trim(self._oldest)

    def position(self, after: int) -> int | None:
        """Return a number for `after`; of two, the difference is the packages in between.

        None when not all above is here. What went from here meanwhile still counts.
        """
        with self._lock:
            here = self._total() - self._length(after)
            return self._gone + here if self.covers(after) else None

    def extent(self, after: int) -> QueueLength:
        """Return how many packages lie above `after`, as exactly as it is known; O(log n)."""
        with self._lock:
            here = self._length(after)
            return QueueLength(here, here + max(0, self._low - self._start(after)))

    def backlog(self, after: int) -> tuple[int, int]:
        """Return how many packages above `after` are here, and the bytes of their bodies.

        Costs two bisections and a sum inside one segment. All there are, if `covers(after)`.
        """
        with self._lock:
            if not self._segments:
                return 0, 0
            number, inside = self._place(self._start(after))
            below = self._bytes_before[number] + self._segments[number].body_bytes_below(inside)
            total = self._bytes_before[-1] + self._segments[-1].body_bytes
            return self._total() - self._before[number] - inside, total - below

    def view(
        self, after: int, limit: int, *, skip_to: int = -1, wanted: EntryFilter = ALL
    ) -> QueueView | None:
        """Return the queue above `after`: a page of it, oldest first, that begins at `skip_to`.

        None when not all of it is here.
        """
        with self._lock:
            if not self.covers(after):
                return None
            head = self._scan(self._start(after), 1, ALL).entries
            page = self._scan(max(self._start(after), skip_to), limit, wanted)
            return QueueView(head[0] if head else None, page)

    def page(self, start: int, limit: int, wanted: EntryFilter) -> QueuePage | None:
        """Return a page of the packages from offset `start` on; None when `start` is not here."""
        with self._lock:
            return None if start < self._low else self._scan(start, limit, wanted)

    def package_at(self, offset: int) -> str | None:
        """Return the id of the agent's package at `offset`; None when none of it is here."""
        with self._lock:
            if not self._segments or offset < self._low:
                return None
            number, inside = self._place(offset)
            segment = self._segments[number]
            is_here = inside < len(segment) and segment.offset(inside) == offset
            return segment.package_id(inside) if is_here else None

    def newest(self) -> int | None:
        """Return the offset of the newest package here."""
        with self._lock:
            last = self._segments[-1].last if self._segments else None
            return last if last is not None and last >= self._oldest else None

    def _scan(self, start: int, limit: int, wanted: EntryFilter) -> QueuePage:
        if not self._segments or limit == 0:
            return QueuePage()
        return scan(self._segments, *self._place(start), limit, wanted)

    def _length(self, after: int) -> int:
        if not self._segments:
            return 0
        number, inside = self._place(self._start(after))
        return self._total() - self._before[number] - inside

    def _start(self, after: int) -> int:
        return max(after + 1, self._oldest)

    def _place(self, offset: int) -> tuple[int, int]:
        """Return the segment, and the index in it, of the first entry not below `offset`."""
        number = max(0, bisect_right(self._firsts, offset) - 1)
        return number, self._segments[number].index_of(offset)

    def _trim(self, below: int) -> None:
        gone = 0
        while gone < len(self._segments) and self._segments[gone].last < below:
            gone += 1
        self._release(gone)

    def _shrink(self) -> None:
        """Remove the oldest segments while there are too many bytes; the tail stays."""
        excess, gone = self.size - self.max_bytes, 0
        while excess > 0 and gone < len(self._segments) - 1:
            excess -= self._segments[gone].size
            gone += 1
        self._release(gone)

    def _release(self, gone: int) -> None:
        if gone:
            self._low = self._segments[gone - 1].last + 1
            self._gone += sum(map(len, self._segments[:gone]))
            del self._segments[:gone]
            self._index()
            self._measure()

    def _total(self) -> int:
        return self._before[-1] + len(self._segments[-1]) if self._segments else 0

    def _index(self) -> None:
        sealed = self._segments[:-1]
        self._firsts = [segment.first for segment in self._segments]
        self._before = list(accumulate(map(len, sealed), initial=0))
        self._bytes_before = list(accumulate((one.body_bytes for one in sealed), initial=0))
        self._sealed_bytes = sum(segment.size for segment in sealed)

    def _measure(self) -> None:
        PUBLISHER_CACHE_ENTRIES.set(self._total())
        PUBLISHER_CACHE_BYTES.set(self.size)
