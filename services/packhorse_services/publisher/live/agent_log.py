"""The logs that events come from: each with its newest, and the journal for who is too late."""

import threading
import time
from dataclasses import dataclass

from packhorse.messaging.api import Bounds, Journal, OffsetOutOfRange, Reader
from packhorse.wire.topics import Topics
from packhorse_services.publisher.live.event_id import LogCursor, mark_of
from packhorse_services.publisher.live.events import (
    Decode,
    EventType,
    GapEvent,
    distributed_event,
    package_event,
    status_event,
)
from packhorse_services.publisher.live.recent_events import EventBatch, RecentEvents, decoded

_POLL_S = 0.25
_PATIENCE_S = 10.0
_RECORDS = 500
_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LogGap:
    """What lies at a cursor is not in the log; `event` says so, and reading goes on at `after`."""

    event: GapEvent
    after: LogCursor


class AgentLog:
    """The part of a topic that speaks of one publisher agent: one partition of it."""

    def __init__(
        self,
        journal: Journal,
        topic: str,
        decode: Decode,
        *,
        kind: EventType,
        key: str | None = None,
    ) -> None:
        self._journal, self.topic, self.kind, self._key = journal, topic, kind, key
        self.recent = RecentEvents(decode)

    def where(self) -> tuple[int, str]:
        """Ask the journal for the partition and its mark."""
        partition = 0 if self._key is None else self._journal.partition_of(self.topic, self._key)
        return partition, mark_of(self._journal.identity(self.topic), partition)

    def read(self, cursor: LogCursor, stopping: threading.Event) -> EventBatch | LogGap:
        """Read some events from the journal, from `cursor` on; none when it is at the end.

        Ends early, and empty-handed, once `stopping` is set. Raises `PackhorseError`.
        """
        partition, mark = self.where()
        bounds = self.bounds(partition)
        if cursor.mark not in ("", mark):
            return self._gap(cursor, bounds.oldest, mark, "ANOTHER_LOG")
        if cursor.offset == bounds.next:
            return EventBatch((), LogCursor(cursor.offset, mark))
        try:
            with self.reader(cursor.offset, partition) as reader:
                return self._batch(reader, LogCursor(cursor.offset, mark), partition, stopping)
        except OffsetOutOfRange as error:
            reason = "FORGOTTEN" if cursor.offset < error.bounds.oldest else "BEYOND_END"
            return self._gap(cursor, error.bounds.oldest, mark, reason)

    def bounds(self, partition: int) -> Bounds:
        """Ask the journal what the log holds."""
        return self._journal.bounds(self.topic, partition)

    def reader(self, start: int, partition: int) -> Reader:
        """Open a reader of the log at offset `start`."""
        values = self.kind is not EventType.PACKAGE  # its headers say all (R17)
        return self._journal.reader(self.topic, start, partition=partition, values=values)

    def _batch(
        self, reader: Reader, cursor: LogCursor, partition: int, stopping: threading.Event
    ) -> EventBatch:
        # No `read_to`: some events are wanted and no end, and a cut log is a gap that is reported.
        deadline = time.monotonic() + _PATIENCE_S
        while not stopping.is_set() and time.monotonic() < deadline:
            records = reader.poll(_POLL_S, max_records=_RECORDS, max_bytes=_BYTES)
            behind = reader.position(partition)
            if records or behind > cursor.offset:
                return EventBatch(
                    decoded(self.recent.decode, records), LogCursor(behind, cursor.mark)
                )
        return EventBatch((), cursor)

    def _gap(self, cursor: LogCursor, oldest: int, mark: str, reason: str) -> LogGap:
        event = GapEvent.model_validate(
            {
                "source": self.kind.value,
                "from_offset": cursor.offset,
                "to_offset": oldest,
                "reason": reason,
            }
        )
        return LogGap(event, LogCursor(oldest, mark))


def event_logs(journal: Journal, topics: Topics, agent: str) -> dict[EventType, AgentLog]:
    """Return them; nothing is read before somebody asks."""
    package, status, event = package_event(agent), status_event(agent), distributed_event(agent)
    return {
        EventType.PACKAGE: AgentLog(journal, topics.package, package, kind=EventType.PACKAGE),
        EventType.STATUS: AgentLog(journal, topics.status, status, kind=EventType.STATUS),
        EventType.DISTRIBUTED: AgentLog(
            journal, topics.event, event, kind=EventType.DISTRIBUTED, key=agent
        ),
    }
