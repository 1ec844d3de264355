"""Pages of queues that are older than the cache: read from the journal, kept nowhere (R15, R17)."""

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from packhorse_services.publisher.queues.columns import Segment
from packhorse_services.publisher.queues.filling import add_rows, rows_of
from packhorse_services.publisher.queues.filters import ALL, EntryFilter
from packhorse_services.publisher.queues.ranges import Ranges
from packhorse_services.publisher.queues.scanning import Page, scan

_THREADS = 2
_RECORDS = 20_000
_BYTES = 8 * 1024 * 1024
_BATCH = 2_000


@dataclass(frozen=True, slots=True)
class Wanted:
    """A page: packages from offset `start` up to, not including, `end`."""

    start: int
    end: int
    limit: int
    filter: EntryFilter = ALL


class JournalPages:
    """Reads pages in threads of its own; callers that want the same one share it."""

    def __init__(self, ranges: Ranges, agent: str) -> None:
        self._ranges, self._agent = ranges, agent.encode()
        self._reading: dict[Wanted, Future[Page]] = {}
        self._readers = ThreadPoolExecutor(_THREADS, "queue-page")

    async def read(self, wanted: Wanted, timeout: float) -> Page:
        """Return a page; a short one says where to go on, as do pages of the cache.

        Costs at most 20,000 records or 8 MiB of entries. Raises TimeoutError, and
        `JournalUnavailable`.
        """
        async with asyncio.timeout(timeout):
            return await asyncio.shield(asyncio.wrap_future(self._page(wanted)))

    def stop(self) -> None:
        """Let go of the threads; what is under way ends at its next record."""
        self._readers.shutdown(wait=False, cancel_futures=True)

    def _page(self, wanted: Wanted) -> Future[Page]:
        reading = self._reading.get(wanted)
        if reading is None or reading.done():
            reading = self._readers.submit(self._read, wanted)
            self._reading[wanted] = reading
            reading.add_done_callback(lambda _: self._reading.pop(wanted, None))
        return reading

    def _read(self, wanted: Wanted) -> Page:
        start = max(wanted.start, self._ranges.oldest())
        batch = wanted.limit + 1 if wanted.filter == ALL else _BATCH
        segments: list[Segment] = []
        page, seen = Page(), 0
        for records in self._ranges.batches(start, wanted.end, batch):
            add_rows(segments, rows_of(records, self._agent))
            page = scan(segments, 0, 0, wanted.limit, wanted.filter)
            seen += len(records)
            if page.behind is not None:
                return page
            if seen >= _RECORDS or sum(segment.size for segment in segments) >= _BYTES:
                return Page(page.entries, records[-1].offset)
        return page
