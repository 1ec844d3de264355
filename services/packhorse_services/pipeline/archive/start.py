"""Where the archive goes on: what the checkpoint, bronze and the journal say, held together.

Offsets that the journal has forgotten before they were archived are never passed over in silence
(R2): they stop the archive until somebody accepts them, and then they are in the table of gaps.
Announcements are the exception: they are kept for an hour, by design.

A journal that was restored from a backup keeps its identity, and uses offsets again for other
records (R24). Once it has grown past the archived ones nothing but the records tells. Times do not
fall from one record to the next, so it is enough to look at the last one that was archived.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql.pandas.types import to_arrow_schema

from packhorse.messaging.api import Journal
from packhorse_services.pipeline.archive import places as at
from packhorse_services.pipeline.archive.journal_source import require_same
from packhorse_services.pipeline.archive.places import Extent, Hole, Places
from packhorse_services.pipeline.archive.reading import plausible, same_headers
from packhorse_services.pipeline.errors import HistoryGap, TaskRefused
from packhorse_services.pipeline.storage import schemas, tables
from packhorse_services.pipeline.storage.delta import stored
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.queries import RELATION, literal, rows

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BronzeState:
    """What bronze has: the place behind its records, and the identities of its topics."""

    newest: Places
    places: Places
    """The same with accepted gaps, behind which it goes on."""
    identities: Mapping[str, str]


_NEWEST = f"""
SELECT topic, partition, max("offset") + 1 AS next,
    first_value(journal_id ORDER BY "offset" DESC) AS journal_id
FROM {RELATION} GROUP BY topic, partition
"""  # noqa: S608 - a constant
_ACCEPTED = f"""
SELECT topic, partition, max(next_offset) AS next FROM {RELATION} GROUP BY topic, partition
"""  # noqa: S608 - a constant


def held_by_bronze(location: Location) -> BronzeState:
    """Read how far bronze reaches, gaps that were accepted included.

    Few columns of the table are read; what comes back is a row a partition.
    """
    newest = list(rows(stored(location, tables.BRONZE), _NEWEST))
    accepted = rows(stored(location, tables.GAPS), _ACCEPTED)
    identities = {row["topic"]: row["journal_id"] for row in newest}
    behind = _places(newest)
    return BronzeState(behind, at.furthest(behind, _places(accepted)), identities)


def _places(found: Iterable[Mapping[str, Any]]) -> Places:
    places: dict[str, dict[int, int]] = {}
    for row in found:
        places.setdefault(row["topic"], {})[row["partition"]] = row["next"]
    return places


def identities_of(journal: Journal, topics: Collection[str], held: BronzeState) -> dict[str, str]:
    """Return the topics' identities.

    Raises `TaskRefused` when bronze has them of other ones, or has other topics: silver's tables
    do not tell topics apart.
    """
    if others := sorted(set(held.identities) - set(topics)):
        raise TaskRefused(
            f"the tables hold {others[0]} already; archive another PACKHORSE_TOPIC_… "
            "with another PACKHORSE_TABLES_URL"
        )
    known = {topic: held.identities[topic] for topic in topics if topic in held.identities}
    require_same(journal, known)
    return {topic: journal.identity(topic) for topic in topics}


def require_not_beyond(extent: Extent, expected: Places) -> None:
    """Raise `TaskRefused` when the journal ends before what is archived (R24)."""
    for topic, number in at.beyond(extent, expected):
        raise TaskRefused(
            f"{topic}/{number} ends at offset {extent[topic][number].next - 1}, and "
            f"{(at.place(expected, topic, number) or 0) - 1} is archived: the journal was restored "
            "from a backup; archive it with another PACKHORSE_TABLES_URL"
        )


def sort_holes(
    found: Collection[Hole], expected: Places, discovery: str, *, accept: bool
) -> list[Hole]:
    """Return the holes to record. Raises `HistoryGap` for those that somebody has to accept.

    What was gone before a partition was ever read stops nobody, and announcements never do.
    """
    blocking = [
        hole
        for hole in found
        if hole.topic != discovery and at.place(expected, hole.topic, hole.partition) is not None
    ]
    if blocking and not accept:
        raise HistoryGap(
            f"the journal has forgotten what was still to be archived: "
            f"{'; '.join(map(str, blocking))}; run it with --accept-gap to record that and go on"
        )
    return list(found)


def record(location: Location, found: Collection[Hole], identities: Mapping[str, str]) -> None:
    """Write holes into the table of gaps."""
    if not found:
        return
    now = datetime.now(UTC)
    records = [
        {
            "topic": hole.topic,
            "journal_id": identities[hole.topic],
            "partition": hole.partition,
            "first_missing": hole.first_missing,
            "next_offset": hole.next_offset,
            "accepted_at": now,
        }
        for hole in found
    ]
    write_deltalake(
        location.delta_uri(tables.GAPS),
        pa.Table.from_pylist(records, to_arrow_schema(schemas.GAPS, timezone="UTC")),
        mode="append",
        storage_options=location.delta_options(),
    )
    for hole in found:
        logger.warning("records are missing from the archive", extra={"hole": str(hole)})


_RECORDS = (
    'SELECT topic, partition, "offset", CAST(time AS BIGINT) / 1000 AS time_ms, headers '  # noqa: S608
    f"FROM {RELATION}"
)
"""Values are left out: they may be large."""


def require_same_records(
    location: Location, journal: Journal, newest: Places, extent: Extent
) -> None:
    """Raise `TaskRefused` when a partition has another record where bronze has its last one.

    `newest` is the place behind bronze's records, `extent` what the journal holds. A record that
    the journal has forgotten can't be compared, and is passed over.
    """
    known = dict(_last_of_both(newest, extent))
    for row in _archived(location, known):
        topic, number, offset = (row[name] for name in ("topic", "partition", "offset"))
        found = journal.read_at(topic, offset, number)
        if found is None:  # forgotten meanwhile
            continue
        time_ms, headers = plausible(found)
        held = {one["key"]: bytes(one["value"]) for one in row["headers"]}
        if time_ms != row["time_ms"] or not same_headers(headers, held):
            raise TaskRefused(
                f"{topic}/{number} has another record at offset {offset} than the "
                "one that was archived: the journal was restored from a backup and has grown "
                "since; archive it with another PACKHORSE_TABLES_URL"
            )


def _last_of_both(newest: Places, extent: Extent) -> Iterator[tuple[tuple[str, int], int]]:
    """Yield by partition the offset of bronze's last record, where the journal holds it too."""
    for topic, partitions in newest.items():
        for number, following in partitions.items():
            bounds = extent.get(topic, {}).get(number)
            if bounds is not None and bounds.oldest < following <= bounds.next:
                yield (topic, number), following - 1


def _archived(
    location: Location, known: Mapping[tuple[str, int], int]
) -> Iterator[Mapping[str, Any]]:
    """Read the records at these offsets; files whose offsets are others are not opened."""
    if not known:
        return
    wanted = " OR ".join(
        f'(topic = {literal(topic)} AND partition = {number} AND "offset" = {offset})'
        for (topic, number), offset in known.items()
    )
    yield from rows(stored(location, tables.BRONZE), f"{_RECORDS} WHERE {wanted}")
