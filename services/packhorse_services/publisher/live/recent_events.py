"""The newest events of one log, in memory, for all clients that follow it."""

import threading
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from packhorse.messaging.api import Record
from packhorse_services.publisher.live.event_id import LogCursor
from packhorse_services.publisher.live.events import Decode, LiveEvent

_EVENTS = 10_000
_BYTES = 8 * 1024 * 1024
_OVERHEAD = 200
_BATCH_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Some events with their offsets, and the cursor behind all that was looked at."""

    events: Sequence[tuple[int, LiveEvent]]
    after: LogCursor


def decoded(decode: Decode, records: Sequence[Record]) -> list[tuple[int, LiveEvent]]:
    """Return the events among `records`, each with its offset."""
    return [(record.offset, event) for record in records if (event := decode(record))]


class RecentEvents:
    """Holds the events of offsets from `low` up to `next`. One thread extends it, any reads.

    Who is outside of it reads the journal instead, so nobody waits for a slow client, and the
    memory is bounded however many there are.
    """

    def __init__(self, decode: Decode, *, events: int = _EVENTS) -> None:
        self.decode = decode
        self._max_events = events
        self._lock = threading.Lock()
        self._events: list[tuple[int, LiveEvent]] = []
        self._size = 0
        self._low = self._next = 0
        self._mark = ""

    @property
    def begun(self) -> bool:
        """Whether it is known which log this is, and where its end is."""
        return bool(self._mark)

    def end(self) -> LogCursor:
        """Return the cursor of who wants only what comes from now on."""
        with self._lock:
            return LogCursor(self._next, self._mark)

    def extend(
        self, mark: str, start: int, records: Sequence[Record], end: int, *, keep: bool = True
    ) -> None:
        """Take in `records`: all that the log has from offset `start` up to, not including, `end`.

        A start that does not continue what is here, or another mark, drops what is here
        first. Without `keep` nothing is decoded or held: nobody follows.
        """
        found = decoded(self.decode, records) if keep else []
        with self._lock:
            if not keep:
                self._clear(mark, end)
            elif mark != self._mark or start != self._next:
                self._clear(mark, start)
            self._next = end
            self._events += found
            self._size += sum(_cost(event) for _, event in found)
            self._trim()

    def read(self, cursor: LogCursor, limit: int) -> EventBatch | None:
        """Return up to `limit` events from `cursor` on; None when they are not all here."""
        with self._lock:
            if cursor.mark != self._mark or not self._low <= cursor.offset <= self._next:
                return None
            first = bisect_left(self._events, cursor.offset, key=_offset)
            events = _some(self._events[first : first + limit])
            more = first + len(events) < len(self._events)
            behind = events[-1][0] + 1 if more else self._next
            return EventBatch(events, LogCursor(behind, self._mark))

    def _clear(self, mark: str, start: int) -> None:
        self._events, self._size = [], 0
        self._mark, self._low, self._next = mark, start, start

    def _trim(self) -> None:
        """Remove the oldest quarter when there are too many: one by one would cost more."""
        while len(self._events) > self._max_events or self._size > _BYTES:
            gone = max(1, len(self._events) // 4)
            self._size -= sum(_cost(event) for _, event in self._events[:gone])
            self._low = self._events[gone - 1][0] + 1
            del self._events[:gone]


def _some(events: Sequence[tuple[int, LiveEvent]]) -> Sequence[tuple[int, LiveEvent]]:
    """Return the first ones that a client may hold at a time, at least one."""
    left = _BATCH_BYTES
    for number, (_, event) in enumerate(events):
        left -= len(event.data)
        if left < 0:
            return events[: max(1, number)]
    return events


def _offset(numbered: tuple[int, LiveEvent]) -> int:
    return numbered[0]


def _cost(event: LiveEvent) -> int:
    return len(event.data) + _OVERHEAD
