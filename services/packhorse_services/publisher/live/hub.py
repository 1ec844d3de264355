"""What all streams of a process share: logs with their rings, places, and the end of it all."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

from packhorse.clock import Clock
from packhorse.errors import Transient
from packhorse.messaging.api import Record
from packhorse.runtime.metrics import PUBLISHER_EVENT_STREAMS
from packhorse.runtime.streams import Streams
from packhorse_services.publisher.live.log import EventLog, Gap
from packhorse_services.publisher.live.position import Cursor, Source, mark_of
from packhorse_services.publisher.live.ring import Batch
from packhorse_services.publisher.live.states import States
from packhorse_services.publisher.live.tail import Tail
from packhorse_services.publisher.queues.queue import Queues

_READERS = 4


class NoEventsYet(Transient):
    """The journal could not be read since this publisher started."""


class Hub(Streams):
    """A component. The queue feed's tail hands it the packages, two tails of its own the rest."""

    def __init__(
        self, logs: Mapping[Source, EventLog], queues: Queues, clock: Clock, *, max_streams: int
    ) -> None:
        super().__init__(PUBLISHER_EVENT_STREAMS, max_streams)
        self.logs, self.states = logs, States(queues, clock)
        self._readers = ThreadPoolExecutor(_READERS, "live-journal")
        self._tails = [
            Tail(self.logs[source], partial(self._take, source), clock)
            for source in (Source.STATUS, Source.EVENT)
        ]

    def start(self) -> None:
        """Start the tails."""
        for tail in self._tails:
            tail.start()

    def stop(self, timeout: float) -> None:
        """End the tails, and the streams that are left."""
        self.end_streams()
        for tail in self._tails:
            tail.stop(timeout)
        self._readers.shutdown(wait=False, cancel_futures=True)

    def failure(self) -> BaseException | None:
        """Return what a tail's thread died of."""
        failures = (tail.failure() for tail in self._tails)
        return next((failure for failure in failures if failure is not None), None)

    @contextmanager
    def place(self) -> Iterator[None]:
        """Take a place for one stream. Raises `TooManyStreams`, `StreamsEnded`, `NoEventsYet`."""
        if not self.ended and not all(log.ring.begun for log in self.logs.values()):
            raise NoEventsYet("the journal has not been read yet; try again shortly")
        with super().place():
            yield

    async def read(self, source: Source, cursor: Cursor) -> Batch | Gap:
        """Read from the journal what the ring lacks, in a thread. Raises `PackhorseError`."""
        reading = self._readers.submit(self.logs[source].read, cursor, self.stopping)
        return await asyncio.wrap_future(reading)

    def take_packages(self, identity: str, start: int, records: Sequence[Record], end: int) -> None:
        """Take what the queue feed's tail has read; see `queues.feed.Tap`."""
        self._take(Source.PACKAGE, mark_of(identity, 0), start, records, end)

    def _take(
        self, source: Source, mark: str, start: int, records: Sequence[Record], end: int
    ) -> None:
        """Fill a ring; without any stream nothing is kept, and a later one reads the journal."""
        self.logs[source].ring.extend(mark, start, records, end, keep=self.count > 0)
        if records:
            self.changes.announce()
