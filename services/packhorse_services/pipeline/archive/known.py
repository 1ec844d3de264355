"""What silver has already of a file of bronze, when an earlier checkpoint may have written it."""

from array import array
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from packhorse.wire.topics import Topics
from packhorse_services.pipeline import tables
from packhorse_services.pipeline.archive.delta import stored
from packhorse_services.pipeline.location import Location
from packhorse_services.pipeline.queries import RELATION, literal, rows

Known = Mapping[str, Mapping[int, pa.Array]]
"""By table and partition: the offsets of the records that it has, 8 bytes each."""

NOTHING: Known = {}


@dataclass(frozen=True, slots=True)
class Extent:
    """Where records are: all offsets from `first` to `last` of a topic's day."""

    topic: str
    day: date
    first: int
    last: int


def tables_of(topics: Topics) -> Mapping[str, tuple[str, ...]]:
    """Return the tables of silver that each topic's records go to, quarantine left out."""
    return {
        topics.package: (tables.PACKAGES,),
        topics.status: (tables.STATUSES, tables.COMMAND_STATUSES),
        topics.discovery: (tables.ANNOUNCEMENTS,),
        topics.command: (tables.COMMANDS,),
        topics.event: (tables.EVENTS,),
    }


def known(location: Location, topics: Topics, extent: Extent) -> Known:
    """Ask the tables that may have records of this extent; no more than these come back."""
    names = (*tables_of(topics).get(extent.topic, ()), tables.QUARANTINE)
    return {name: _offsets(location, name, extent) for name in names}


def without(known: Known, table: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows that the table does not have."""
    fresh = batch
    for number, offsets in known.get(table, {}).items():
        here = pc.equal(fresh.column("partition"), number)
        held = pc.and_(here, pc.is_in(fresh.column("offset"), value_set=offsets))
        fresh = fresh.filter(pc.invert(held))
    return fresh


def _offsets(location: Location, table: str, extent: Extent) -> dict[int, pa.Array]:
    conditions = [
        f"day = DATE '{extent.day.isoformat()}'",
        f'"offset" BETWEEN {extent.first} AND {extent.last}',
    ]
    if table == tables.QUARANTINE:
        conditions.append(f"topic = {literal(extent.topic)}")
    query = f'SELECT partition, "offset" FROM {RELATION} WHERE {" AND ".join(conditions)}'  # noqa: S608 - quoted
    found: defaultdict[int, array[int]] = defaultdict(lambda: array("q"))
    for row in rows(stored(location, table), query):
        found[row["partition"]].append(row["offset"])
    return {number: pa.array(offsets, pa.int64()) for number, offsets in found.items()}
