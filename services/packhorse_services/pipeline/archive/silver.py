"""Records of bronze decoded to silver: each once, into the table of its kind or into quarantine.

A record that nobody can decode goes to quarantine as it was, with the reason. Bodies that went by
reference are kept on the way.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from packhorse.blobs.api import BlobCorrupt, BlobMissing, BlobStore, package_key
from packhorse.blobs.digest import Verified
from packhorse.blobs.open import open_blobs
from packhorse.wire.record import Undecodable
from packhorse.wire.topics import Topics
from packhorse_services.pipeline.archive.decoding import Row, decoded
from packhorse_services.pipeline.archive.reading import headers_of
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.delta import (
    APPLICATION,
    SILVER,
    BatchMark,
    append,
    load,
    overtaken,
    stored,
)
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.parquet import Files, columns, written
from packhorse_services.pipeline.storage.schemas import BRONZE as SCHEMA
from packhorse_services.pipeline.storage.table_files import files_of

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
        sha256, length = package["body_sha256"], package["body_length"]
        try:
            target.put(key, Verified(source.get(key), sha256=sha256, length=length))
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


_MAX_REASON = 1_000


@dataclass(frozen=True, slots=True)
class Decoder:
    """What makes silver of bronze, in a task."""

    topics: Topics
    blobs_url: str
    """The product's blob store."""
    bodies_url: str
    """The archive's own."""

    def copying(self) -> AbstractContextManager[Bodies]:
        """Lend what copies the bodies from one store to the other."""
        return closing(Bodies(self.blobs_url, self.bodies_url))

    def decode(self, batch: pa.RecordBatch, bodies: Bodies) -> Mapping[str, pa.RecordBatch]:
        """Return rows for each table of silver that gets some, with the columns of its schema.

        A package whose body is gone is in quarantine too.
        """
        found: defaultdict[str, _Rows] = defaultdict(_Rows)
        topics, values = (batch.column(name).to_pylist() for name in ("topic", "value"))
        records = zip(topics, headers_of(batch.column("headers")), values, strict=True)
        for number, (topic, headers, value) in enumerate(records):
            try:
                table, row = decoded(self.topics, topic, headers, value)
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


def decode_what_is_missing(
    spark: SparkSession, location: Location, decoder: Decoder, begun: int
) -> None:
    """Give silver what it lacks of bronze: who leaves a checkpoint may leave a batch half done.

    `begun` is bronze's version; what another run has added since is left to that. Reads all of
    bronze. Whatever ends it, it may be run again. Raises `Overtaken`.
    """
    mark = BatchMark(begun, begun)
    append(location, tables.BRONZE, mark)
    now = stored(location, tables.BRONZE)
    if now.transaction_version(APPLICATION) != begun:
        raise overtaken(tables.BRONZE)
    bronze = load(spark, location, tables.BRONZE, now)
    there = {None, *(one.partition["topic"] for one in files_of(now))}
    for table, topic in _sources(decoder.topics).items():
        if topic not in there:  # its log alone says so
            append(location, table, mark)
            continue
        held = load(spark, location, table).select(*(["topic"] if topic is None else []), *_PLACE)
        raw = bronze if topic is None else bronze.where(f.col("topic") == topic)
        missing = raw.join(held, held.columns, "left_anti").select(*SCHEMA.names)
        files = written(missing, location, partial(_decoded, decoder, table))
        append(location, table, mark, [one.action for one in files])


def _decoded(decoder: Decoder, table: str, files: Files, batches: Iterator[pa.RecordBatch]) -> None:
    """Write of what records come to the rows of one table."""
    shape = columns(tables.BRONZE)
    with decoder.copying() as bodies:
        for batch in batches:
            arrays = [batch.column(one.name).cast(one.type) for one in shape]
            found = decoder.decode(pa.RecordBatch.from_arrays(arrays, schema=shape), bodies)
            if table in found:
                files.add(table, found[table])


_PLACE = ("partition", "offset")


def _sources(topics: Topics) -> Mapping[str, str | None]:
    """Return the topic that each table's records are from, in the order of commits; None: any."""
    found = {
        tables.QUARANTINE: None,
        tables.PACKAGES: topics.package,
        tables.STATUSES: topics.status,
        tables.COMMAND_STATUSES: topics.status,
        tables.ANNOUNCEMENTS: topics.discovery,
        tables.COMMANDS: topics.command,
        tables.EVENTS: topics.event,
    }
    return {table: found[table] for table in SILVER}
