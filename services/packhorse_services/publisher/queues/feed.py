"""Keeps the queue cache filled: a thread follows the tail, ranges below it come on demand."""

import asyncio
import logging
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from packhorse.clock import Clock
from packhorse.errors import PackhorseError, Transient
from packhorse.messaging.api import Journal, Reader, Record
from packhorse.messaging.ranges import read_range
from packhorse.runtime.lifecycle import Worker
from packhorse.runtime.metrics import PUBLISHER_CACHE_FETCHES
from packhorse_services.publisher.queues.cache import QueueCache
from packhorse_services.publisher.queues.columns import Segment, add_record

logger = logging.getLogger(__name__)

_POLL_S = 0.5
_RETRY_S = 1.0
_BATCH = 2_000
_CHECK_S = 15.0
_BEGIN_S = 5.0


class Tap(Protocol):
    """Is handed what the tail reads, in the tail's thread, so that nobody reads it twice."""

    def __call__(self, identity: str, start: int, records: Sequence[Record], end: int) -> None:
        """Take all records of the log `identity` from `start` up to, not including, `end`."""
        ...


class QueueLoading(Transient):
    """The queue is being read from the journal; ask again shortly."""


class QueueTooLong(Transient):
    """The queue has more entries than this publisher may keep in memory; raise cache_bytes."""


class QueueFeed:
    """A component that owns the cache's contents."""

    def __init__(
        self,
        journal: Journal,
        topic: str,
        cache: QueueCache,
        *,
        clock: Clock,
        max_bytes: int = 512 * 1024 * 1024,
    ) -> None:
        self._journal, self._topic, self.cache = journal, topic, cache
        self._clock, self._max_bytes = clock, max_bytes
        self.identity = ""
        """The log whose offsets the cache speaks of; empty before it is known."""
        self.tap: Tap | None = None
        self._begun = threading.Event()
        self._lock = threading.Lock()
        self._fetch: tuple[int, Future[None]] | None = None
        self._fetcher = ThreadPoolExecutor(1, "queue-fetch")
        self._worker = Worker("queue-tail", self._follow)

    def start(self) -> None:
        """Begin at the end of the log; nothing is sent to find out where that is."""
        self._worker.start()

    def stop(self, timeout: float) -> None:
        """End both threads."""
        self._worker.stop(timeout)
        self._fetcher.shutdown(wait=False, cancel_futures=True)

    def failure(self) -> BaseException | None:
        """Return what the tail's thread died of."""
        return self._worker.failure()

    async def need(self, offset: int, timeout: float = 10.0) -> None:
        """Return once the cache has every package above `offset` that is still in the log.

        Callers share one fetch of what is missing. Raises `QueueLoading` when that takes longer
        than `timeout` seconds, while it goes on, and `QueueTooLong`.
        """
        if self._begun.is_set() and self.cache.covers(offset):
            return
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(asyncio.wrap_future(self._fetching(offset)))
        except TimeoutError as error:
            raise QueueLoading("the queue is still being read; ask again shortly") from error

    def _follow(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            try:
                self._follow_log(stopping)
            except PackhorseError as error:
                logger.warning("the queues' tail was lost", extra={"error": str(error)})
                self._clock.wait(stopping, _RETRY_S)

    def _follow_log(self, stopping: threading.Event) -> None:
        self._check_log()
        with self._journal.reader(
            self._topic, self.cache.next, partition=0, values=False
        ) as reader:
            self._begun.set()
            self._hand_on(self.cache.next, (), self.cache.next)
            checked = self._clock.monotonic()
            while not stopping.is_set():
                self._read_on(reader)
                if self._clock.monotonic() - checked > _CHECK_S:
                    checked = self._clock.monotonic()
                    if self._check_log():
                        return

    def _read_on(self, reader: Reader) -> None:
        start = reader.position()
        records = reader.poll(_POLL_S, max_records=_BATCH)
        if records:
            self.cache.extend(records)
        if reader.position() != start:
            self._hand_on(start, records, reader.position())

    def _hand_on(self, start: int, records: Sequence[Record], end: int) -> None:
        if self.tap is not None:
            self.tap(self.identity, start, records, end)

    def _check_log(self) -> bool:
        """Forget what the log has forgotten; tell whether the log is another one than before."""
        identity, bounds = self._journal.identity(self._topic), self._journal.bounds(self._topic)
        replaced = identity != self.identity or bounds.next < self.cache.next
        if replaced:
            self.cache.reset(bounds.next)
            self.identity = identity
        elif self.cache.next < bounds.oldest:  # retention was faster than we are
            self.cache.reset(bounds.oldest)
        self.cache.forget_below(bounds.oldest)
        return replaced

    def _fetching(self, offset: int) -> Future[None]:
        with self._lock:
            if self._fetch is None or self._fetch[1].done() or self._fetch[0] > offset:
                self._fetch = offset, self._fetcher.submit(self._fetch_above, offset)
            return self._fetch[1]

    def _fetch_above(self, offset: int) -> None:
        """Put what lies between `offset` and the cache's low end into the cache."""
        if not self._begun.wait(_BEGIN_S):
            raise QueueLoading("the journal can't be read right now; try again later")
        while not self.cache.covers(offset):
            bounds = self._journal.bounds(self._topic)
            self.cache.forget_below(bounds.oldest)
            start, end = max(offset + 1, bounds.oldest), self.cache.low
            PUBLISHER_CACHE_FETCHES.inc()
            self.cache.prepend(self._collect(start, end), start, end)

    def _collect(self, start: int, end: int) -> list[Segment]:
        segments: list[Segment] = []
        room = self._max_bytes - self.cache.size
        agent = self.cache.agent.encode()
        for record in read_range(self._journal, self._topic, start, end):
            full = len(segments)
            add_record(segments, record, agent)
            if len(segments) > full > 0:
                room -= segments[-2].size
                if room < 0:
                    raise QueueTooLong("the queue is longer than cache_bytes allows; raise it")
        if segments:
            segments[-1].seal()
        return segments
