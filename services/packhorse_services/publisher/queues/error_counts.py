"""How many packages each subscriber gave up on, for overviews that must cost nothing (R18).

The error queues themselves are in the database, see `outcomes.error_queue`.
"""

import threading
from collections.abc import Callable, Mapping


class ErrorCounts:
    """Counted as a whole by one thread, noted and read by any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Mapping[str, int] = {}
        self._noted: dict[str, int] = {}

    def renew(self, counted: Callable[[], Mapping[str, int]]) -> None:
        """Take new counts; what is noted while they are counted is newer. Raises its errors."""
        with self._lock:
            self._noted.clear()
        counts = counted()
        with self._lock:
            self._counts = {**counts, **self._noted}

    def note(self, subscriber: str, count: int) -> None:
        """Take one subscriber's new count."""
        with self._lock:
            self._noted[subscriber] = count
            self._counts = {**self._counts, subscriber: count}

    def count(self, subscriber: str) -> int:
        """Return the length of a subscriber's error queue."""
        return self._counts.get(subscriber, 0)
