"""Pages of queues that are older than the cache: read from the journal, kept nowhere (R15, R17)."""

from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass

from packhorse.runtime.threads import LoopWakeups, Threads
from packhorse_services.publisher.queues.cache.columns import ColumnSegment
from packhorse_services.publisher.queues.cache.filling import add_rows, rows_of
from packhorse_services.publisher.queues.cache.filters import ALL, EntryFilter
from packhorse_services.publisher.queues.cache.ranges import Ranges
from packhorse_services.publisher.queues.cache.scanning import QueuePage, scan

_THREADS = 2
_RECORDS = 20_000
_BYTES = 8 * 1024 * 1024
_BATCH = 2_000


@dataclass(frozen=True, slots=True)
class PageRange:
    """A page: packages from offset `start` up to, not including, `end`."""

    start: int
    end: int
    limit: int
    filter: EntryFilter = ALL


class JournalPages:
    """Reads pages in threads of its own; callers that want the same one share it."""

    def __init__(self, ranges: Ranges, agent: str) -> None:
        self._ranges, self._agent = ranges, agent.encode()
        self._reading: dict[PageRange, Future[QueuePage]] = {}
        self._waiting: Counter[Future[QueuePage]] = Counter()
        """How many callers wait for it: what nobody waits for any more is not begun."""
        self._readers = Threads("queue-page", _THREADS)

    async def read(self, wanted: PageRange, timeout: float) -> QueuePage:
        """Return a page; a short one says where to go on, as do pages of the cache.

        Costs at most 20,000 records or 8 MiB of entries. Raises TimeoutError, and
        `JournalUnavailable`.
        """
        reading = self._page(wanted)
        self._waiting[reading] += 1
        try:
            return await LoopWakeups().result(reading, timeout)
        finally:
            self._waiting[reading] -= 1
            if not self._waiting[reading]:
                del self._waiting[reading]
                reading.cancel()  # it has not begun, or ends by itself

    def stop(self) -> None:
        """Stop the threads; what is under way ends at its next record."""
        self._readers.shutdown(wait=False, cancel_futures=True)

    def _page(self, wanted: PageRange) -> Future[QueuePage]:
        reading = self._reading.get(wanted)
        if reading is None or reading.done():
            reading = self._readers.submit(self._read, wanted)
            self._reading[wanted] = reading
            reading.add_done_callback(lambda _: self._reading.pop(wanted, None))
        return reading

    def _read(self, wanted: PageRange) -> QueuePage:
        start = max(wanted.start, self._ranges.oldest())
        # Not just a page's worth: most records may be of other agents.
        batch = max(wanted.limit + 1, 500) if wanted.filter == ALL else _BATCH
        segments: list[ColumnSegment] = []
        page, seen = QueuePage(), 0
        for records in self._ranges.batches(start, wanted.end, batch):
            add_rows(segments, rows_of(records, self._agent))
            page = scan(segments, 0, 0, wanted.limit, wanted.filter)
            seen += len(records)
            if page.behind is not None:
                return page
            if seen >= _RECORDS or sum(segment.size for segment in segments) >= _BYTES:
                return QueuePage(page.entries, records[-1].offset)
        return page
