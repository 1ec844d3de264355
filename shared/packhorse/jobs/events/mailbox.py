"""What one handler has still to hear, and whether it is slow: sans I/O, time is a parameter."""

from collections import deque
from dataclasses import dataclass

from packhorse.jobs.event import Event

SLOW_S = 5.0
"""A handler is slow when an event has been with it, or has waited for it, for longer."""
CAPACITY = 1_000


@dataclass(slots=True)
class Lost:
    """So many events in a row that the handler has missed."""

    count: int


@dataclass(slots=True)
class _Entry:
    item: Event | Lost
    posted_at: float


class EventMailbox:
    """Events in order, bounded: one that finds no room is lost, and counted in its place.

    A handler that is slow stays so until it has done everything. Not safe for threads.
    """

    def __init__(self, capacity: int = CAPACITY, slow_s: float = SLOW_S) -> None:
        self._capacity, self._slow_s = capacity, slow_s
        self._entries: deque[_Entry] = deque()
        self._current: _Entry | None = None
        self.slow = False
        self.posted = 0
        """Events that were taken in: the last one's place."""
        self.done = 0
        """Events of which nothing is left to do; all up to this place."""
        self.lost = 0

    @property
    def waiting(self) -> int:
        """Events that are not done."""
        return self.posted - self.done

    @property
    def full(self) -> bool:
        """Whether the next event would be lost."""
        return len(self._entries) >= self._capacity

    @property
    def oldest(self) -> Event | Lost | None:
        """What the handler is at, or has to take next; None when there is nothing."""
        oldest = self._oldest()
        return oldest.item if oldest else None

    def post(self, event: Event, now: float) -> None:
        """Take an event in, or count it as lost."""
        if not self.full:
            self._entries.append(_Entry(event, now))
            self.posted += 1
            return
        self.lost += 1
        last = self._entries[-1].item
        if isinstance(last, Lost):
            last.count += 1
        else:
            self._entries.append(_Entry(Lost(1), now))

    def take(self) -> Event | Lost | None:
        """Return what the handler has to hear next; None when there is nothing."""
        self._current = self._entries.popleft() if self._entries else None
        return self._current.item if self._current else None

    def finish(self) -> bool:
        """Say that the handler has done what was taken; returns whether it has caught up."""
        if self._current is not None and isinstance(self._current.item, Event):
            self.done += 1
        self._current = None
        caught_up = self.slow and not self._entries
        self.slow = self.slow and not caught_up
        return caught_up

    def look(self, now: float) -> bool:
        """Return whether the handler has become slow since it was last looked at."""
        became = not self.slow and now >= self.due()
        self.slow = self.slow or became
        return became

    def due(self) -> float:
        """Return when the handler becomes slow unless it does something; inf without events."""
        oldest = self._oldest()
        return float("inf") if oldest is None else oldest.posted_at + self._slow_s

    def behind_s(self, now: float) -> float:
        """Return for how many seconds the oldest event has not been done."""
        return max(0.0, now - self.due() + self._slow_s)

    def _oldest(self) -> _Entry | None:
        return self._current or (self._entries[0] if self._entries else None)
