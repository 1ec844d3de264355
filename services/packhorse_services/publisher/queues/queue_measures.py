"""The metrics of queues: one series a subscriber, none of those that are gone (R30)."""

from collections.abc import Iterable
from typing import NamedTuple

from packhorse.runtime.metrics import (
    PUBLISHER_QUEUE_ENTRIES,
    PUBLISHER_QUEUE_OLDEST_SECONDS,
    PUBLISHER_SUBSCRIBER_SILENT_SECONDS,
)

_MAX_SERIES = 1_000


class QueueFigures(NamedTuple):
    """Of one queue: what is known, at least."""

    entries: int
    lag_s: float
    silent_s: float
    subscriber: str
    clearable: str


class QueueMeasures:
    """Remembers what it shows of an agent's queues. Used by one thread."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._shown: set[tuple[str, str]] = set()

    def show(self, queues: Iterable[QueueFigures]) -> None:
        """Show these queues and no others; of more than a thousand, the longest."""
        chosen = sorted(queues, reverse=True)[:_MAX_SERIES]
        for entries, lag_s, silent_s, subscriber, clearable in chosen:
            PUBLISHER_QUEUE_ENTRIES.labels(self._agent, subscriber, clearable).set(entries)
            PUBLISHER_QUEUE_OLDEST_SECONDS.labels(self._agent, subscriber).set(lag_s)
            PUBLISHER_SUBSCRIBER_SILENT_SECONDS.labels(self._agent, subscriber).set(silent_s)
        shown = {(one.subscriber, one.clearable) for one in chosen}
        names = {one.subscriber for one in chosen}
        for subscriber, clearable in self._shown - shown:
            PUBLISHER_QUEUE_ENTRIES.remove(self._agent, subscriber, clearable)
            if subscriber not in names:
                PUBLISHER_QUEUE_OLDEST_SECONDS.remove(self._agent, subscriber)
                PUBLISHER_SUBSCRIBER_SILENT_SECONDS.remove(self._agent, subscriber)
        self._shown = shown
