"""The metrics of queues: one series a subscriber, none of those that are gone (R30)."""

from collections.abc import Iterable
from typing import NamedTuple

from packhorse.runtime.metrics import PUBLISHER_QUEUE_ENTRIES, PUBLISHER_QUEUE_OLDEST_SECONDS

_MAX_SERIES = 1_000


class Figures(NamedTuple):
    """Of one queue: what is known, at least."""

    entries: int
    lag_s: float
    subscriber: str
    clearable: str


class QueueMeasures:
    """Remembers what it shows. Used by one thread."""

    def __init__(self) -> None:
        self._shown: set[tuple[str, str]] = set()

    def show(self, queues: Iterable[Figures]) -> None:
        """Show these queues and no others; of more than a thousand, the longest."""
        chosen = sorted(queues, reverse=True)[:_MAX_SERIES]
        for entries, lag_s, subscriber, clearable in chosen:
            PUBLISHER_QUEUE_ENTRIES.labels(subscriber, clearable).set(entries)
            PUBLISHER_QUEUE_OLDEST_SECONDS.labels(subscriber).set(lag_s)
        shown = {(one.subscriber, one.clearable) for one in chosen}
        names = {one.subscriber for one in chosen}
        for subscriber, clearable in self._shown - shown:
            PUBLISHER_QUEUE_ENTRIES.remove(subscriber, clearable)
            if subscriber not in names:
                PUBLISHER_QUEUE_OLDEST_SECONDS.remove(subscriber)
        self._shown = shown
