"""Whether the journal still holds what was archived of it: the last record of each partition.

A journal that was restored from a backup keeps its identity, and uses offsets again for other
records (R24). Once it has grown past the archived ones nothing but the records tells. Times do not
fall from one record to the next, so it is enough to look at the last one that was archived.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from packhorse.messaging.api import Journal
from packhorse_services.pipeline import tables
from packhorse_services.pipeline.archive.delta import stored
from packhorse_services.pipeline.archive.places import Extent, Places
from packhorse_services.pipeline.archive.times import plausible, plausible_ms, same_headers
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.location import Location
from packhorse_services.pipeline.queries import RELATION, literal, rows

_RECORDS = (
    'SELECT topic, partition, "offset", CAST(time AS BIGINT) AS time_us, headers '  # noqa: S608
    f"FROM {RELATION}"
)
"""Times as numbers: older builds have archived some that Python's calendar does not know."""


@dataclass(frozen=True, slots=True)
class Archived:
    """What bronze tells of a record, its value left out: it may be large."""

    topic: str
    partition: int
    offset: int
    time_ms: int
    headers: Mapping[str, bytes]


def require_same_records(
    location: Location, journal: Journal, newest: Places, extent: Extent
) -> None:
    """Raise `TaskRefused` when a partition has another record where bronze has its last one.

    `newest` is the place behind bronze's records, `extent` what the journal holds. A record that
    the journal has forgotten can't be compared, and is passed over.
    """
    known = {
        (topic, number): following - 1
        for topic, partitions in newest.items()
        for number, following in partitions.items()
        if (bounds := extent.get(topic, {}).get(number))
        and bounds.oldest < following <= bounds.next
    }
    for one in _archived(location, known):
        found = journal.read_at(one.topic, one.offset, one.partition)
        if found is None:  # forgotten meanwhile
            continue
        time_ms, headers = plausible(found)
        if time_ms != plausible_ms(one.time_ms) or not same_headers(headers, one.headers):
            raise TaskRefused(
                f"{one.topic}/{one.partition} has another record at offset {one.offset} than the "
                "one that was archived: the journal was restored from a backup and has grown "
                "since; archive it with another PACKHORSE_TABLES_URL"
            )


def _archived(location: Location, known: Mapping[tuple[str, int], int]) -> Iterator[Archived]:
    """Read the records at these offsets; files whose offsets are others are not opened."""
    if not known:
        return
    wanted = " OR ".join(
        f'(topic = {literal(topic)} AND partition = {number} AND "offset" = {offset})'
        for (topic, number), offset in known.items()
    )
    query = f"{_RECORDS} WHERE {wanted}"
    for row in rows(stored(location, tables.BRONZE), query):
        headers = {one["key"]: bytes(one["value"]) for one in row["headers"]}
        time_ms = row["time_us"] // 1000
        yield Archived(row["topic"], row["partition"], row["offset"], time_ms, headers)
