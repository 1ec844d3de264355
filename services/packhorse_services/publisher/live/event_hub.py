"""What all streams of a process share: logs that threads follow, places, and the end of it all."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from starlette.types import Scope

from packhorse.clock import Clock
from packhorse.errors import Transient
from packhorse.messaging.api import Record
from packhorse.messaging.reading import Polled, follow, keep_following
from packhorse.runtime.feed import Streams
from packhorse.runtime.lifecycle import Worker, WorkerComponent, stop_all
from packhorse.runtime.metrics import PUBLISHER_EVENT_STREAMS
from packhorse.runtime.threads import Threads
from packhorse_services.publisher.live.agent_log import AgentLog, LogGap
from packhorse_services.publisher.live.event_id import LogCursor, mark_of
from packhorse_services.publisher.live.events import EventType
from packhorse_services.publisher.live.recent_events import EventBatch
from packhorse_services.publisher.live.subscriber_states import States
from packhorse_services.publisher.queues.queue import Queues

Take = Callable[[str, int, Sequence[Record], int], None]
"""Takes what a log holds from one offset up to another; the first argument is the log's mark."""


class Tail(WorkerComponent):
    """A component that follows the end of one log."""

    def __init__(self, log: AgentLog, take: Take, clock: Clock) -> None:
        self._log, self._take, self._clock = log, take, clock
        self._polled = Polled()
        self._worker = Worker(f"live-{log.kind}", self._run, wake=self._polled.wake)

    def _run(self, stopping: threading.Event) -> None:
        what = f"the end of {self._log.topic}"
        keep_following(stopping, self._clock, what, partial(self._steps, stopping))

    def _steps(self, stopping: threading.Event) -> Iterator[None]:
        """Follow one log from its end, a step a poll, until it is another one.

        What came while nobody followed is not lost: the recent events then begin later, and
        streams read the journal up to there.
        """
        partition, mark = self._log.where()
        start = self._log.bounds(partition).next
        with self._polled.polling(self._log.reader(start, partition)) as reader:

            def is_over() -> bool:
                if self._log.where() != (partition, mark):
                    return True
                return self._log.bounds(partition).next < reader.position(partition)

            self._take(mark, start, (), start)
            for step in follow(reader, stopping, self._clock, partition=partition, is_over=is_over):
                if step.start != step.end:
                    self._take(mark, step.start, step.records, step.end)
                yield


_READERS = 4


class NoEventsYet(Transient):
    """The journal could not be read since this publisher started."""


class EventHub(Streams):
    """A component. The queue feed's tail hands it the packages, two tails of its own the rest."""

    def __init__(
        self,
        logs: Mapping[EventType, AgentLog],
        queues: Queues,
        clock: Clock,
        *,
        max_streams: int,
    ) -> None:
        super().__init__(PUBLISHER_EVENT_STREAMS, max_streams)
        self.logs, self.states = logs, States(queues, clock)
        self.on_statuses: Callable[[], None] = lambda: None
        """Called when there are new ones."""
        self._readers = Threads("live-journal", _READERS)
        self._tails = [
            Tail(self.logs[source], partial(self._take, source), clock)
            for source in (EventType.STATUS, EventType.DISTRIBUTED)
        ]

    def start(self) -> None:
        """Start the tails."""
        for tail in self._tails:
            tail.start()

    def stop(self, timeout: float) -> None:
        """End the tails, and the streams that are left."""
        self.end_streams()
        stop_all(self._tails, timeout)
        self._readers.shutdown(wait=False, cancel_futures=True)

    def failure(self) -> BaseException | None:
        """Return what a tail's thread died of."""
        failures = (tail.failure() for tail in self._tails)
        return next((failure for failure in failures if failure is not None), None)

    @contextmanager
    def place(self, scope: Scope) -> Iterator[None]:
        """Take a place for a stream as `Streams` says; raises `NoEventsYet` besides."""
        if not self.ended and not all(log.recent.begun for log in self.logs.values()):
            raise NoEventsYet("the journal has not been read yet; try again shortly")
        with super().place(scope):
            yield

    async def read(self, source: EventType, cursor: LogCursor) -> EventBatch | LogGap:
        """Read from the journal, in a thread, what recent events lack. Raises `PackhorseError`."""
        reading = self._readers.submit(self.logs[source].read, cursor, self.stopping)
        return await asyncio.wrap_future(reading)

    def take_packages(self, identity: str, start: int, records: Sequence[Record], end: int) -> None:
        """Take what the queue feed's tail has read; see `queues.cache.queue_feed.Tap`."""
        self._take(EventType.PACKAGE, mark_of(identity, 0), start, records, end)

    def _take(
        self, source: EventType, mark: str, start: int, records: Sequence[Record], end: int
    ) -> None:
        """Add recent events; without any stream none is kept: a later one reads the journal."""
        self.logs[source].recent.extend(mark, start, records, end, keep=self.count > 0)
        if records:
            self.changes.announce()
            if source is EventType.STATUS:
                self.on_statuses()
