"""Where readers of the journal stand: the next offset of every partition of every topic."""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from packhorse.messaging.api import Bounds, Journal

Places = Mapping[str, Mapping[int, int]]
"""By topic and partition: the offset of the record that comes next."""

Extent = Mapping[str, Mapping[int, Bounds]]
"""By topic and partition: what the journal holds."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of one partition from `start` up to, not including, `end`."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Hole:
    """Offsets that the journal has forgotten before they were archived."""

    topic: str
    partition: int
    first_missing: int
    next_offset: int

    def __str__(self) -> str:
        return (
            f"{self.topic}/{self.partition} lacks offsets {self.first_missing} to "
            f"{self.next_offset - 1}, and goes on at {self.next_offset}"
        )


def extent_of(journal: Journal, topics: Iterable[str]) -> Extent:
    """Return what the journal holds of each topic. Raises `JournalUnavailable`, `TopicMissing`."""
    return {
        topic: {
            number: journal.bounds(topic, number) for number in range(journal.partitions(topic))
        }
        for topic in topics
    }


def furthest(*places: Places) -> Places:
    """Return for each partition the furthest of its places."""
    found: dict[str, dict[int, int]] = {}
    for one in places:
        for topic, partitions in one.items():
            known = found.setdefault(topic, {})
            for number, offset in partitions.items():
                known[number] = max(offset, known.get(number, 0))
    return found


def place(places: Places, topic: str, partition: int) -> int | None:
    """Return the place in one partition, or None where nothing is known of it."""
    return places.get(topic, {}).get(partition)


def starts(extent: Extent, places: Places) -> Places:
    """Return where a new reader begins: at its place, else at the oldest offset there is."""
    return {
        topic: {
            number: max(bounds.oldest, place(places, topic, number) or 0)
            for number, bounds in partitions.items()
        }
        for topic, partitions in extent.items()
    }


def ends(extent: Extent) -> Places:
    """Return where the journal ends now."""
    return {
        topic: {number: bounds.next for number, bounds in partitions.items()}
        for topic, partitions in extent.items()
    }


def holes(extent: Extent, places: Places) -> list[Hole]:
    """Return what was forgotten between each place and the oldest offset.

    A partition that nothing is known of was never read: all below its oldest offset is missing.
    """
    return [
        Hole(topic, number, expected, bounds.oldest)
        for topic, partitions in extent.items()
        for number, bounds in partitions.items()
        if (expected := place(places, topic, number) or 0) < bounds.oldest
    ]


def beyond(extent: Extent, places: Places) -> list[tuple[str, int]]:
    """Return the partitions that end before what was read of them already."""
    return [
        (topic, number)
        for topic, partitions in extent.items()
        for number, bounds in partitions.items()
        if (place(places, topic, number) or 0) > bounds.next
    ]


def distance(start: Places, end: Places) -> int:
    """Return how many offsets lie between the two."""
    return sum(
        max(0, offset - (place(start, topic, number) or 0))
        for topic, partitions in end.items()
        for number, offset in partitions.items()
    )


def version_of(places: Places) -> int:
    """Return a number that grows with the places, and that no others have by chance.

    It is their sum, and behind it 16 bits of a checksum of all: partitions that have gone on
    differently may have one sum.
    """
    whole = sum(offset for partitions in places.values() for offset in partitions.values())
    return whole << 16 | zlib.crc32(as_json(places).encode()) & 0xFFFF


def shares(start: Places, end: Places, count: int) -> list[list[OffsetRange]]:
    """Cut what lies between into up to `count` shares, each as long as the others."""
    whole = distance(start, end)
    cuts = sorted({whole * number // count for number in range(1, count)} - {0})
    found: list[list[OffsetRange]] = [[]]
    passed = 0
    for one in _ranges(start, end):
        first = one.start
        while cuts and passed + one.end - first >= cuts[0]:
            cut = first + cuts.pop(0) - passed
            passed += cut - first
            found[-1].append(replace(one, start=first, end=cut))
            found.append([])
            first = cut
        if first < one.end:
            found[-1].append(replace(one, start=first))
            passed += one.end - first
    return [share for share in found if share]


def _ranges(start: Places, end: Places) -> Iterator[OffsetRange]:
    for topic, partitions in end.items():
        for number, last in partitions.items():
            first = place(start, topic, number) or 0
            if first < last:
                yield OffsetRange(topic, number, first, last)


def as_json(places: Places) -> str:
    """Return the places as Spark's sources keep them: partitions are texts."""
    return json.dumps(as_document(places), sort_keys=True)


def as_document(places: Places) -> dict[str, dict[str, int]]:
    """Return what `as_json` writes, before it is written."""
    return {
        topic: {str(number): offset for number, offset in partitions.items()}
        for topic, partitions in places.items()
    }


def from_document(document: object) -> Places:
    """Return the places that a source has kept. Raises ValueError for anything else."""
    if not isinstance(document, dict):
        raise ValueError("no JSON object of topics")
    return {str(topic): _partitions(partitions) for topic, partitions in document.items()}


def _partitions(document: object) -> Mapping[int, int]:
    if not isinstance(document, dict):
        raise ValueError("no JSON object of partitions")
    return {int(number): int(offset) for number, offset in document.items()}
