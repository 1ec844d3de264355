"""Keeps the queue cache filled: a thread follows the tail, ranges below it come on demand."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from packhorse.clock import Clock
from packhorse.errors import Transient
from packhorse.messaging.api import Journal, Record
from packhorse.messaging.reading import Polled, Progress, follow, keep_following
from packhorse.runtime.lifecycle import Worker, WorkerComponent
from packhorse.runtime.threads import LoopWakeups, Threads
from packhorse_services.publisher.queues.cache.columns import QueueEntry
from packhorse_services.publisher.queues.cache.journal_pages import JournalPages, PageRange
from packhorse_services.publisher.queues.cache.position_check import PositionCheck
from packhorse_services.publisher.queues.cache.queue_cache import QueueCache
from packhorse_services.publisher.queues.cache.ranges import RangeFetch, Ranges
from packhorse_services.publisher.queues.cache.scanning import QueuePage

_POLL_S = 0.25
_BATCH = 2_000


Tap = Callable[[str, int, Sequence[Record], int], None]
"""Takes all records of the log of an identity, from an offset up to, not including, another."""


class QueueLoading(Transient):
    """The queue is being read from the journal; ask again shortly."""


class QueueFeed(WorkerComponent):
    """A component that owns the cache's contents.

    It begins at the end of the log; nothing is sent to find out where that is.
    """

    def __init__(self, journal: Journal, topic: str, cache: QueueCache, *, clock: Clock) -> None:
        self._journal, self._topic, self.cache = journal, topic, cache
        self._clock = clock
        self.identity = ""
        """The log whose offsets the cache speaks of; empty before it is known, and in between."""
        self.tap: Tap | None = None
        """Is handed what the tail reads, in its thread, so that nobody reads it twice."""
        self.positions = PositionCheck(journal, topic, cache, clock)
        self.on_distrust: Callable[[], None] = lambda: None
        """Called by any thread once what subscribers have announced proves nothing any more."""
        self._distrusted = threading.Event()
        self._begun = threading.Event()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        ranges = Ranges(journal, topic, self._stopping)
        self._ranges = RangeFetch(ranges, cache)
        self._pages = JournalPages(ranges, cache.agent)
        self._fetch: tuple[int, Future[None]] | None = None
        self._fetcher = Threads("queue-fetch", 1)
        self._polled = Polled()
        self._worker = Worker("queue-tail", self._follow, wake=self._polled.wake)

    def stop(self, timeout: float) -> None:
        """End both threads."""
        self._stopping.set()
        self._worker.stop(timeout)
        self._pages.stop()
        self._fetcher.shutdown(wait=False, cancel_futures=True)

    @property
    def begun(self) -> bool:
        """Whether the end of the log is known."""
        return self._begun.is_set()

    @property
    def full(self) -> bool:
        """Return whether the cache took all that it may, and queues go on below it."""
        return self._ranges.full

    def known_identity(self) -> str:
        """Return `identity`, where offsets mean nothing without it. Raises `QueueLoading`."""
        identity = self.identity
        if not identity:
            raise QueueLoading("the journal was not read yet; try again shortly")
        return identity

    def distrust(self) -> None:
        """Read everything anew: offsets that were used before came again. For any thread."""
        self._distrusted.set()
        self._polled.wake()
        self._forget_positions()

    def _forget_positions(self) -> None:
        self.positions.distrust()
        self.on_distrust()

    async def need(self, offset: int, timeout: float) -> bool:
        """Return whether the cache has every package above `offset` that is still in the log.

        Has what is missing fetched, which all callers share, and waits at most `timeout` seconds
        for it; the fetch goes on after that. Raises `QueueLoading` when not even the end of the
        log is known by then, and whatever makes the journal unavailable.
        """
        fetch = self.want(offset)
        if fetch is not None:
            try:
                await LoopWakeups().result(fetch, timeout)
            except TimeoutError as error:
                if not self._begun.is_set():
                    raise QueueLoading("the journal can't be read now; try again later") from error
        return self.cache.covers(offset)

    def want(self, offset: int) -> Future[None] | None:
        """Have fetched what is missing above `offset`; None when nothing is, or has no room."""
        if self._begun.is_set() and (self.cache.covers(offset) or self.full):
            return None
        with self._lock:
            if self._fetch is None or self._fetch[1].done() or self._fetch[0] > offset:
                self._fetch = offset, self._fetcher.submit(self._fetch_above, offset)
            return self._fetch[1]

    async def page(self, wanted: PageRange, timeout: float) -> QueuePage:
        """Return a page that begins below the cache and may end in it; `wanted.end` is ours.

        Fills no cache. Raises `QueueLoading` after `timeout` seconds.
        """
        here = self.cache.page(wanted.start, wanted.limit, wanted.filter)
        if here is not None:
            return here
        wanted = replace(wanted, end=self.cache.low)
        try:
            page = await self._pages.read(wanted, timeout)
        except TimeoutError as error:
            raise QueueLoading("the queue is still being read; ask again shortly") from error
        return self._continued(wanted, page)

    async def first(self, start: int, timeout: float) -> QueueEntry | None:
        """Return the first package from `start` on, as `page` does; None: not found in time.

        Other agents may have more packages before it than one page reads.
        """
        until = self._clock.monotonic() + timeout
        page = await self.page(PageRange(start, -1, 1), timeout)
        while not page.entries and page.behind is not None and self._clock.monotonic() < until:
            page = await self.page(PageRange(page.behind + 1, -1, 1), timeout)
        return page.entries[0] if page.entries else None

    def _continued(self, wanted: PageRange, page: QueuePage) -> QueuePage:
        """Return the page with what the cache has behind it."""
        if page.behind is not None:
            return page
        room = wanted.limit - len(page.entries)
        rest = self.cache.page(wanted.end, room, wanted.filter) if room else None
        if rest is None:
            return QueuePage(page.entries, wanted.end - 1)
        return QueuePage([*page.entries, *rest.entries], rest.behind)

    def keep_above(self, needed: int) -> None:
        """Remove what lies below `needed`, and find out anew what there is room for."""
        self.cache.trim(needed)
        self._ranges.full = False

    def _fetch_above(self, offset: int) -> None:
        while not self._begun.wait(_POLL_S):
            if self._stopping.is_set():
                return
        self._ranges.fetch_above(offset)

    def _follow(self, stopping: threading.Event) -> None:
        steps = partial(self._steps, stopping)
        keep_following(stopping, self._clock, "the queues' tail", steps)

    def _steps(self, stopping: threading.Event) -> Iterator[None]:
        """Follow one log, a step a poll, until it is another one."""
        self._check_log()
        opened = self._journal.reader(self._topic, self.cache.next, partition=0, values=False)
        with self._polled.polling(opened) as reader:
            self._begun.set()
            self._hand_on(self.cache.next, (), self.cache.next)
            for step in follow(
                reader, stopping, self._clock, max_records=_BATCH, is_over=self._check_log
            ):
                self._take(step)
                yield
                if self._distrusted.is_set():
                    return  # the next round begins with a look at the log

    def _take(self, step: Progress) -> None:
        if step.records:
            self.cache.extend(step.records)
        if step.start != step.end:
            self._hand_on(step.start, step.records, step.end)

    def _hand_on(self, start: int, records: Sequence[Record], end: int) -> None:
        if self.tap is not None:
            self.tap(self.identity, start, records, end)

    def _check_log(self) -> bool:
        """Forget what the log has forgotten; return whether the log is another one than before."""
        was_distrusted = self._distrusted.is_set()
        identity, bounds = self._journal.identity(self._topic), self._journal.bounds(self._topic)
        replaced = identity != self.identity or bounds.next < self.cache.next or was_distrusted
        if replaced:
            self.identity = ""  # who compares it before and after sees that the cache was reset
            self.cache.reset(bounds.next)
            self.identity = identity
            if was_distrusted:
                self._distrusted.clear()
            self._forget_positions()
            self.positions.trust()
        elif self.cache.next < bounds.oldest:  # retention was faster than we are
            self.cache.reset(bounds.oldest)
        self.cache.forget_below(bounds.oldest)
        return replaced
