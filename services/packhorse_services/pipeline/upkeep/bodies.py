"""Bodies in the archive's blob store whose packages have expired."""

from collections.abc import Iterable, Iterator
from contextlib import closing

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from packhorse.blobs.open import open_blobs
from packhorse_services.pipeline.pieces import batches, scattered

_ROWS = 2_000
_SHARDS = [f"{number:02x}" for number in range(256)]
_LISTED = StructType([StructField("key", StringType()), StructField("modified_ms", LongType())])


def listed(spark: SparkSession, url: str) -> DataFrame:
    """Return key and modified_ms of every body, listed by the workers, shard after shard."""
    shape = to_arrow_schema(_LISTED)

    def run(shards: Iterable[str]) -> Iterator[pa.RecordBatch]:
        with closing(open_blobs(url)) as blobs:
            found = (blob for shard in shards for blob in blobs.list(f"packages/{shard}/"))
            yield from batches(((one.key, one.modified_ms) for one in found), shape, _ROWS)

    return scattered(spark, _SHARDS, run, _LISTED)


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
