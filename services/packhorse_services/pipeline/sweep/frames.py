"""The frames of marks and sweeps: rows made on the executors, and what is compared of them."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from packhorse.blobs.api import StoredBlob
from packhorse_services.pipeline.pieces import batches
from packhorse_services.pipeline.sweep.report import Remove
from packhorse_services.pipeline.sweep.work import BlobScan, FindingKind

_KEY, _LENGTH = StructField("key", StringType()), StructField("length", LongType())
_MODIFIED = StructField("modified_ms", LongType())

BLOBS = StructType([_KEY, _LENGTH, _MODIFIED])
REMOVALS = StructType([_KEY, _LENGTH, StructField("removed", BooleanType())])

FOUND = StructType([StructField("source", StringType()), StructField("kind", StringType()), _KEY])

HOLDER = ["holder", "length", "modified_ms"]
"""Which blob refers, and how it was then: another length or time, and it may be another one."""

FOUND_IN = StructType([*FOUND, StructField("holder", StringType()), _LENGTH, _MODIFIED])

_ROWS = 5_000
_Batches = Iterator[pa.RecordBatch]

_KEEPING = (FindingKind.REFERENCE.value, FindingKind.NAME.value, FindingKind.UNREADABLE.value)


def unused(blobs: DataFrame, found: DataFrame, before_ms: int) -> DataFrame:
    """Return the `blobs` that are older than a time and that no row of `found` keeps."""
    return blobs.where(f.col("modified_ms") <= before_ms).join(_kept(found), "key", "left_anti")


def doomed(candidates: DataFrame, found: DataFrame, removals: DataFrame) -> DataFrame:
    """Return the candidates that `found` keeps not either, and that are not gone already."""
    gone = removals.where("removed").select("key")
    return candidates.join(_kept(found), "key", "left_anti").join(gone, "key", "left_anti")


def never_read(found: DataFrame) -> DataFrame:
    """Return the keys of bodies that the log has and that nobody could read."""
    of_log = found.where(f.col("kind") == FindingKind.IN_LOG.value).select("key").distinct()
    return of_log.join(_read(found).select("key"), "key", "left_anti")


def unreadable(found: DataFrame) -> DataFrame:
    """Return the keys of what is no stored body, each once."""
    return found.where(f.col("kind") == FindingKind.UNREADABLE.value).select("key").distinct()


def to_read(listed: DataFrame, remembered: DataFrame) -> DataFrame:
    """Return the blobs of `listed` that are not as they were when they were read."""
    return listed.join(_read(remembered).select(*HOLDER), HOLDER, "left_anti")


def read_before(listed: DataFrame, remembered: DataFrame) -> DataFrame:
    """Return what the other ones refer to."""
    return remembered.join(listed, HOLDER, "left_semi").select(*remembered.columns)


def to_remember(found: DataFrame, before_ms: int) -> DataFrame:
    """Return what the blobs refer to that are older than a time and were read to their end."""
    read = _read(found).where(f.col("modified_ms") <= before_ms).select(*HOLDER)
    return found.join(read, HOLDER, "left_semi").select(*found.columns)


def totals(blobs: DataFrame) -> DataFrame:
    """Return `kind`, `count` and `bytes`, a row for each kind of blob."""
    return blobs.groupBy(f.substring_index("key", "/", 1).alias("kind")).agg(
        f.count("*").alias("count"), f.sum("length").alias("bytes")
    )


def _kept(found: DataFrame) -> DataFrame:
    return found.where(f.col("kind").isin(*_KEEPING)).select("key").distinct()


def _read(found: DataFrame) -> DataFrame:
    return found.where(f.col("kind") == FindingKind.READ.value)


def making(
    rows: Callable[[Any], Iterator[tuple[object, ...]]], schema: StructType
) -> Callable[[Iterable[Any]], _Batches]:
    """Return what makes rows with these columns of pieces; `rows` yields those of a piece."""
    shape = to_arrow_schema(schema)

    def run(pieces: Iterable[Any]) -> _Batches:
        yield from batches(chain.from_iterable(map(rows, pieces)), shape, _ROWS)

    return run


def reading(name: str, scan: BlobScan) -> Callable[[_Batches], _Batches]:
    """Return what makes `FOUND_IN` of blobs."""
    shape = to_arrow_schema(FOUND_IN)

    def run(given: _Batches) -> _Batches:
        rows = (
            (name, found.kind.value, found.key, blob.key, blob.length, blob.modified_ms)
            for blob, found in scan.read(_blobs(given))
        )
        yield from batches(rows, shape, _ROWS)

    return run


def removing(remove: Remove) -> Callable[[_Batches], _Batches]:
    """Return what removes blobs, and makes `REMOVALS` of them."""
    shape = to_arrow_schema(REMOVALS)

    def run(given: _Batches) -> _Batches:
        rows = ((done.key, done.length, done.removed) for done in remove(_blobs(given)))
        yield from batches(rows, shape, _ROWS)

    return run


def _blobs(given: _Batches) -> Iterator[StoredBlob]:
    """Yield the blobs of batches that have key, length and modified_ms in this order."""
    for batch in given:
        columns = (column.to_pylist() for column in batch.columns)
        for row in zip(*columns, strict=True):
            yield StoredBlob(*row)
