"""One log that events come from: its ring, and the journal behind it for who is too late."""

import threading
import time
from dataclasses import dataclass

from packhorse.messaging.api import Bounds, Journal, OffsetOutOfRange, Reader
from packhorse_services.publisher.live.events import Decode, EventType, GapEvent
from packhorse_services.publisher.live.position import Cursor, mark_of
from packhorse_services.publisher.live.ring import Batch, Ring, decoded

_POLL_S = 0.5
_PATIENCE_S = 10.0
_RECORDS = 500
_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Gap:
    """What lies at a cursor is not in the log; `event` says so, and reading goes on at `after`."""

    event: GapEvent
    after: Cursor


class EventLog:
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
        self.ring = Ring(decode)

    def where(self) -> tuple[int, str]:
        """Ask the journal for the partition and its mark."""
        partition = 0 if self._key is None else self._journal.partition_of(self.topic, self._key)
        return partition, mark_of(self._journal.identity(self.topic), partition)

    def read(self, cursor: Cursor, stopping: threading.Event) -> Batch | Gap:
        """Read some events from the journal, from `cursor` on; none when it is at the end.

        Ends early, and empty-handed, once `stopping` is set. Raises `PackhorseError`.
        """
        partition, mark = self.where()
        bounds = self.bounds(partition)
        if cursor.mark not in ("", mark):
            return self._gap(cursor, bounds.oldest, mark, "ANOTHER_LOG")
        if cursor.offset == bounds.next:
            return Batch((), Cursor(cursor.offset, mark))
        try:
            with self.reader(cursor.offset, partition) as reader:
                return self._batch(reader, Cursor(cursor.offset, mark), partition, stopping)
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
        self, reader: Reader, cursor: Cursor, partition: int, stopping: threading.Event
    ) -> Batch:
        deadline = time.monotonic() + _PATIENCE_S
        while not stopping.is_set() and time.monotonic() < deadline:
            records = reader.poll(_POLL_S, max_records=_RECORDS, max_bytes=_BYTES)
            behind = reader.position(partition)
            if records or behind > cursor.offset:
                return Batch(decoded(self.ring.decode, records), Cursor(behind, cursor.mark))
        return Batch((), cursor)

    def _gap(self, cursor: Cursor, oldest: int, mark: str, reason: str) -> Gap:
        event = GapEvent.model_validate(
            {
                "source": self.kind.value,
                "from_offset": cursor.offset,
                "to_offset": oldest,
                "reason": reason,
            }
        )
        return Gap(event, Cursor(oldest, mark))
