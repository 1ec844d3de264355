"""Reads what the golden subscriber reports: its statuses and its announcements (ADR 0014)."""

import logging
import threading
from collections.abc import Iterator
from functools import partial

from packhorse.clock import Clock, SystemClock
from packhorse.messaging.api import Journal, LogEnd, OffsetOutOfRange, Position, Reader, Record
from packhorse.messaging.reading import keep_following
from packhorse.runtime.lifecycle import Worker, WorkerComponent
from packhorse.wire.codec import decode_discovery, decode_status
from packhorse.wire.messages import CommandStatusMessage, DiscoveryMessage
from packhorse.wire.record import Undecodable, message_type
from packhorse.wire.topics import Topics
from packhorse_services.subscriber.staging.staging import Staging

logger = logging.getLogger(__name__)

_POLL_S = 0.25


class StagingFollower(WorkerComponent):
    """A component: one thread that reads the status topic, and the golden one's announcements.

    It begins with the oldest status whenever the staging wants a new reading. An announcement
    counts once the statuses that were in the topic when it came have been read.
    """

    def __init__(
        self, journal: Journal, topics: Topics, staging: Staging, clock: Clock | None = None
    ) -> None:
        self._journal, self._topics, self._staging = journal, topics, staging
        self._clock = clock or SystemClock()
        self._golden = staging.golden.encode()
        self._reading = 0
        self._identity = ""
        self._next: Position = LogEnd.OLDEST
        self._end: int | None = None
        self._covered = False
        self._heard: DiscoveryMessage | None = None
        self._said_before = 0
        self._worker = Worker("staging", self._run)

    def _run(self, stopping: threading.Event) -> None:
        steps = partial(self._steps, stopping)
        what = f"the subscriber {self._staging.golden}, which is waited for,"
        keep_following(stopping, self._clock, what, steps)

    def _steps(self, stopping: threading.Event) -> Iterator[None]:
        if not self._staging.wait_until_wanted(_POLL_S):
            return  # a standby needs nothing
        try:
            yield from self._follow(stopping)
        except OffsetOutOfRange:
            self._reading, self._next = 0, LogEnd.OLDEST

    def _follow(self, stopping: threading.Event) -> Iterator[None]:
        journal, discovery, status = self._journal, self._topics.discovery, self._topics.status
        if journal.identity(status) != self._identity:
            self._identity = journal.identity(status)
            self._reading, self._next = 0, LogEnd.OLDEST
        partition = journal.partition_of(discovery, self._staging.golden)
        self._said_before = journal.bounds(discovery, partition).next
        with (
            journal.reader(discovery, LogEnd.OLDEST, partition=partition) as announcements,
            journal.reader(status, self._next, partition=0) as statuses,
        ):
            while not stopping.is_set():
                if self._staging.wanted() != self._reading:
                    self._begin(statuses)
                if self._hear(announcements):
                    self._end = journal.bounds(status).next
                self._read(statuses)
                yield

    def _begin(self, statuses: Reader) -> None:
        """Read all statuses again, for a subscription that is new or that was moved."""
        self._reading = self._staging.wanted()
        bounds = self._journal.bounds(self._topics.status)
        statuses.seek(LogEnd.OLDEST)
        self._end, self._covered = bounds.next, bounds.next == 0
        self._staging.covers(0 if self._covered else float("inf"))

    def _hear(self, announcements: Reader) -> bool:
        heard, age_s = None, 0.0
        for record in announcements.poll(0.0):
            if record.key != self._staging.golden:
                continue
            message = _announcement(record)
            if message is not None and message.subscriber == self._staging.golden:
                heard, age_s = message, self._age_s(record)
        if heard is None:
            return False
        self._heard = heard
        self._staging.announced(heard, age_s)
        return True

    def _age_s(self, record: Record) -> float:
        """Return how old an announcement is, for display: 0 unless it was there before us."""
        if record.offset >= self._said_before:
            return 0.0
        return max(0.0, (self._clock.wall_ms() - record.time_ms) / 1000)

    def _read(self, statuses: Reader) -> None:
        records = statuses.poll(_POLL_S)
        for record in records:
            self._take(record)
        self._next = statuses.position(0)
        complete = self._end is not None and self._next >= self._end
        if complete:
            self._end = None
            self._staging.read_to_end(self._reading, self._heard)
        if records or complete:
            self._staging.wake()

    def _take(self, record: Record) -> None:
        if not self._covered:
            self._covered = True
            self._staging.covers(0 if record.offset == 0 else record.time_ms)
        if self._golden not in record.value:  # far cheaper than to decode everybody's statuses
            return
        if message_type(record.headers) == CommandStatusMessage.__name__:
            return  # shares the topic, and reports no package
        try:
            message = decode_status(record.headers, record.value)
        except Undecodable as error:
            logger.warning(
                "an unreadable status is passed over",
                extra={"offset": record.offset, "error": str(error)},
            )
            # It may have reported any package before it, whose lack of a status proves nothing now.
            self._staging.covers(record.time_ms + 1)
            return
        if message.subscriber == self._staging.golden:
            self._staging.status(message)


def _announcement(record: Record) -> DiscoveryMessage | None:
    try:
        return decode_discovery(record.headers, record.value)
    except Undecodable:
        return None
