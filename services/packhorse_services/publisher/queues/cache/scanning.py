"""Pages of a queue out of segments, with or without a filter, at a bounded cost."""

from collections.abc import Sequence
from dataclasses import dataclass

from packhorse_services.publisher.queues.cache.columns import ColumnSegment, QueueEntry
from packhorse_services.publisher.queues.cache.filters import EntryFilter

SCAN = 50_000
"""About how many entries one page may cost; what was found by then is the page."""


@dataclass(frozen=True, slots=True)
class QueuePage:
    """Some entries of a queue, oldest first."""

    entries: Sequence[QueueEntry] = ()
    behind: int | None = None
    """The next page begins behind this offset; None when there is nothing more."""


def scan(
    segments: Sequence[ColumnSegment], number: int, first: int, limit: int, wanted: EntryFilter
) -> QueuePage:
    """Return the first `limit` entries that are wanted, from index `first` of a segment on."""
    entries: list[QueueEntry] = []
    scanned = 0
    while limit and number < len(segments):
        segment = segments[number]
        left = limit - len(entries)
        found = segment.matching(wanted, first, left + 1)
        entries += map(segment.entry, found[:left])
        if len(found) > left:
            return QueuePage(entries, entries[-1].offset)
        scanned += len(segment) - first
        number, first = number + 1, 0
        if scanned >= SCAN and number < len(segments):
            return QueuePage(entries, segment.last)
    return QueuePage(entries)
