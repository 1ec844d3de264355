"""How many packages each subscriber gave up on, for overviews that must cost nothing (R18).

The error queues themselves are in the database, see `outcomes.error_queue`.
"""

from collections.abc import Mapping


class ErrorCounts:
    """Replaced as a whole by one thread, read by any."""

    def __init__(self) -> None:
        self._counts: Mapping[str, int] = {}

    def replace(self, counts: Mapping[str, int]) -> None:
        """Take new counts."""
        self._counts = dict(counts)

    def note(self, subscriber: str, count: int) -> None:
        """Take one subscriber's new count."""
        self._counts = {**self._counts, subscriber: count}

    def count(self, subscriber: str) -> int:
        """Return the length of a subscriber's error queue."""
        return self._counts.get(subscriber, 0)
