"""Files of bronze to files of silver: each record decoded once, for the table of its kind.

A record that nobody can decode goes to quarantine as it was, with the reason.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from packhorse.wire.record import Undecodable
from packhorse.wire.topics import Topics
from packhorse_services.pipeline import storage, tables
from packhorse_services.pipeline.archive.bodies import Bodies, opened
from packhorse_services.pipeline.archive.decoding import Row, decoded
from packhorse_services.pipeline.archive.delta import SILVER
from packhorse_services.pipeline.archive.files import Files, columns, rows_in
from packhorse_services.pipeline.archive.known import NOTHING, Extent, Known, known, without
from packhorse_services.pipeline.archive.places import Places
from packhorse_services.pipeline.archive.reading import headers_of
from packhorse_services.pipeline.location import Location

_MOST_RECORDS = 1_000
_MAX_REASON = 1_000

_BRONZE = columns(tables.BRONZE)


@dataclass(frozen=True, slots=True)
class Source:
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

    def run(self, files: Files, sources: Iterable[Source]) -> None:
        """Decode files, one after the other, in memory that does not grow with them."""
        filesystem = storage.filesystem(self.location)
        with opened(self.blobs_url, self.location.blobs_url(tables.BODIES)) as bodies:
            for source in sources:
                with filesystem.open_input_file(source.path) as raw:
                    self._decode(raw, source, bodies, files)

    def _decode(self, raw: pa.NativeFile, source: Source, bodies: Bodies, into: Files) -> None:
        known = self._known(raw, source)
        told = {"topic": source.topic, "day": source.day}
        for batch in rows_in(raw, told, _BRONZE, _MOST_RECORDS):
            for table, rows in decoded_batch(batch, self.topics, bodies).items():
                into.add(table, without(known, table, rows))

    def _known(self, raw: pa.NativeFile, source: Source) -> Known:
        """Ask what silver has of these records, where an earlier checkpoint may have been."""
        below = max(self.repeated.get(source.topic, {}).values(), default=0)
        if not below:
            return NOTHING
        offsets = pq.ParquetFile(raw).read(["offset"], use_threads=False).column("offset")
        ends = pc.min_max(offsets).as_py()
        if ends["min"] >= below:
            return NOTHING
        extent = Extent(source.topic, source.day, ends["min"], ends["max"])
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
