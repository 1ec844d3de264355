"""Files of bronze to files of silver: each record decoded once, for the table of its kind.

A record that nobody can decode goes to quarantine as it was, with the reason. Bodies that went by
reference are copied into the archive's own blob store before the product prunes them. Where an
earlier checkpoint may have written a file's rows, silver is asked which of them it has.
"""

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from packhorse.blobs.api import BlobCorrupt, BlobMissing, BlobStore, package_key
from packhorse.blobs.digest import Verified
from packhorse.blobs.open import open_blobs
from packhorse.wire.record import Undecodable
from packhorse.wire.topics import Topics
from packhorse_services.pipeline.archive.decoding import Row, decoded
from packhorse_services.pipeline.archive.places import Places
from packhorse_services.pipeline.archive.reading import headers_of
from packhorse_services.pipeline.storage import arrow_files, tables
from packhorse_services.pipeline.storage.delta import SILVER, stored
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.parquet import Files, columns, rows_in
from packhorse_services.pipeline.storage.queries import RELATION, literal, rows

Known = Mapping[str, Mapping[int, pa.Array]]
"""By table and partition: the offsets of the records that it has, 8 bytes each."""

NOTHING: Known = {}


@dataclass(frozen=True, slots=True)
class ArchivedRange:
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


def known(location: Location, topics: Topics, extent: ArchivedRange) -> Known:
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


def _offsets(location: Location, table: str, extent: ArchivedRange) -> dict[int, pa.Array]:
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


MISSING = "body missing: "
"""How the reason begins of a package whose body was gone before it could be archived."""


class Bodies:
    """Copies from the product's blob store to the archive's, both opened when first needed."""

    def __init__(self, source_url: str, target_url: str) -> None:
        self._urls = source_url, target_url
        self._stores: tuple[BlobStore, BlobStore] | None = None

    def keep(self, package: dict[str, Any]) -> str | None:
        """Copy the body of a row of `schemas.PACKAGES`, unless it is inline or there already.

        Returns why it can't be kept, or None. Memory is constant whatever the length. Raises
        `BlobStoreUnavailable`: then nobody knows yet whether the body is there.
        """
        key = package["body_reference"]
        if key is None:
            return None
        if key != package_key(package["package_id"]):
            return f"{MISSING}the package refers to a blob that is not its own"
        source, target = self._opened()
        if target.head(key) is not None:
            return None
        try:
            _copy(key, source, target, package["body_sha256"], package["body_length"])
        except BlobMissing:
            return f"{MISSING}{key} is no longer in the blob store"
        except BlobCorrupt as error:
            return f"{MISSING}{error}"
        return None

    def close(self) -> None:
        """Let go of the stores."""
        for store in self._stores or ():
            store.close()

    def _opened(self) -> tuple[BlobStore, BlobStore]:
        if self._stores is None:
            source, target = self._urls
            self._stores = open_blobs(source), open_blobs(target)
        return self._stores


def _copy(key: str, source: BlobStore, target: BlobStore, sha256: str, length: int) -> None:
    target.put(key, Verified(source.get(key), sha256=sha256, length=length))


@contextmanager
def opened(source_url: str, target_url: str) -> Iterator[Bodies]:
    """Open a copier and close it."""
    bodies = Bodies(source_url, target_url)
    try:
        yield bodies
    finally:
        bodies.close()


_MOST_RECORDS = 1_000
_MAX_REASON = 1_000

_BRONZE = columns(tables.BRONZE)


@dataclass(frozen=True, slots=True)
class BronzeFile:
    """A file of bronze; what it is partitioned by is not in it."""

    path: str
    topic: str
    day: date


@dataclass(frozen=True, slots=True)
class Decoder:
    """Makes silver of bronze, in a task."""

    location: Location
    topics: Topics
    blobs_url: str
    repeated: Places
    """Below these places, silver may have records already."""

    def run(self, files: Files, sources: Iterable[BronzeFile]) -> None:
        """Decode files, one after the other, in memory that does not grow with them."""
        filesystem = arrow_files.filesystem(self.location)
        with opened(self.blobs_url, self.location.blobs_url(tables.BODIES)) as bodies:
            for source in sources:
                with filesystem.open_input_file(source.path) as raw:
                    self._decode(raw, source, bodies, files)

    def _decode(self, raw: pa.NativeFile, source: BronzeFile, bodies: Bodies, into: Files) -> None:
        known = self._known(raw, source)
        told = {"topic": source.topic, "day": source.day}
        for batch in rows_in(raw, told, _BRONZE, _MOST_RECORDS):
            for table, found in decoded_batch(batch, self.topics, bodies).items():
                into.add(table, without(known, table, found))

    def _known(self, raw: pa.NativeFile, source: BronzeFile) -> Known:
        """Ask what silver has of these records, where an earlier checkpoint may have been."""
        below = max(self.repeated.get(source.topic, {}).values(), default=0)
        if not below:
            return NOTHING
        offsets = pq.ParquetFile(raw).read(["offset"], use_threads=False).column("offset")
        ends = pc.min_max(offsets).as_py()
        if ends["min"] >= below:
            return NOTHING
        extent = ArchivedRange(source.topic, source.day, ends["min"], ends["max"])
        return known(self.location, self.topics, extent)


def decoded_batch(
    batch: pa.RecordBatch, topics: Topics, bodies: Bodies
) -> dict[str, pa.RecordBatch]:
    """Return rows for each table of silver that gets some, with the columns of its schema.

    Bodies that went by reference are kept on the way; a package whose body is gone is in
    quarantine too.
    """
    found: defaultdict[str, _Rows] = defaultdict(_Rows)
    values = batch.column("value").to_pylist()
    topic_names, headers = batch.column("topic").to_pylist(), headers_of(batch.column("headers"))
    for number, (topic, named, value) in enumerate(zip(topic_names, headers, values, strict=True)):
        try:
            table, row = decoded(topics, topic, named, value)
        except Undecodable as error:
            found[tables.QUARANTINE].add(number, {"reason": _reason(str(error))})
            continue
        found[table].add(number, row)
        if table == tables.PACKAGES and (reason := bodies.keep(row)):
            found[tables.QUARANTINE].add(number, {"reason": _reason(reason)})
    return {table: rows.batch(table, batch) for table, rows in found.items()}


def _reason(text: str) -> str:
    return text.encode(errors="replace").decode()[:_MAX_REASON]


@dataclass(slots=True)
class _Rows:
    """What a table gets of a batch: the numbers of the records, and the columns of its own."""

    numbers: list[int] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def add(self, number: int, row: Row) -> None:
        self.numbers.append(number)
        self.rows.append(row)

    def batch(self, table: str, source: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows; the columns of the record itself are the source's own."""
        taken = source.select([name for name in SILVER[table].names if name in source.schema.names])
        if len(self.numbers) < source.num_rows:
            taken = taken.take(pa.array(self.numbers))
        shape = columns(table)
        arrays = [
            taken.column(name)
            if name in taken.schema.names
            else pa.array([row[name] for row in self.rows], kind)
            for name, kind in zip(shape.names, shape.types, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=shape)
