"""Bodies in the archive's blob store whose packages have expired."""

from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession

from packhorse.blobs.open import open_blobs

_SHARDS = 256
_BATCH = 2_000
_LISTED = pa.schema([("key", pa.string()), ("modified_ms", pa.int64())])


def listed(spark: SparkSession, url: str) -> DataFrame:
    """Return key and modified_ms of every body, listed by the workers, shard after shard."""

    def list_shards(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with closing(open_blobs(url)) as blobs:
            for batch in batches:
                for shard in batch.column(0).to_pylist():
                    yield from _batches(blobs.list(f"packages/{shard:02x}/"))

    shards = spark.range(0, _SHARDS, 1, min(_SHARDS, spark.sparkContext.defaultParallelism * 2))
    return shards.mapInArrow(list_shards, "key string, modified_ms long")


def _batches(found: Iterator[object]) -> Iterator[pa.RecordBatch]:
    keys: list[str] = []
    times: list[int] = []
    for blob in found:
        keys.append(blob.key)  # type: ignore[attr-defined]
        times.append(blob.modified_ms)  # type: ignore[attr-defined]
        if len(keys) == _BATCH:
            yield pa.RecordBatch.from_arrays([pa.array(keys), pa.array(times)], schema=_LISTED)
            keys, times = [], []
    if keys:
        yield pa.RecordBatch.from_arrays([pa.array(keys), pa.array(times)], schema=_LISTED)


def expired(bodies: DataFrame, packages: DataFrame, before_ms: int) -> DataFrame:
    """Return the bodies that no package refers to, of those stored before `before_ms`.

    A younger one may belong to a package that is being archived.
    """
    kept = packages.where("body_reference IS NOT NULL").select(packages["body_reference"])
    old = bodies.where(bodies["modified_ms"] < before_ms)
    return old.join(kept, old["key"] == kept["body_reference"], "left_anti")


def delete(bodies: DataFrame, url: str) -> None:
    """Delete the bodies, in the workers; one that is gone is a success."""

    def delete_all(rows: Iterator[Row]) -> None:
        with closing(open_blobs(url)) as blobs:
            for row in rows:
                blobs.delete(row["key"])

    bodies.foreachPartition(delete_all)
