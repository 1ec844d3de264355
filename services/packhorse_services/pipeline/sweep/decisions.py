"""Which blobs go: pure comparisons of what is stored with what is referred to."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from packhorse_services.pipeline.sweep.work import Kind

_KEEPING = (Kind.REFERENCE.value, Kind.NAME.value, Kind.UNREADABLE.value)


def unused(blobs: DataFrame, found: DataFrame, before_ms: int) -> DataFrame:
    """Return the `blobs` that are older than a time and that no row of `found` keeps."""
    return blobs.where(f.col("modified_ms") <= before_ms).join(_kept(found), "key", "left_anti")


def doomed(candidates: DataFrame, found: DataFrame, removals: DataFrame) -> DataFrame:
    """Return the candidates that `found` keeps not either, and that are not gone already."""
    gone = removals.where("removed").select("key")
    return candidates.join(_kept(found), "key", "left_anti").join(gone, "key", "left_anti")


def never_read(found: DataFrame) -> DataFrame:
    """Return the keys of bodies that the log has and that nobody could read."""
    of_log = found.where(f.col("kind") == Kind.IN_LOG.value).select("key").distinct()
    read = found.where(f.col("kind") == Kind.READ.value).select("key")
    return of_log.join(read, "key", "left_anti")


def unreadable(found: DataFrame) -> DataFrame:
    """Return the keys of what is no stored body, each once."""
    return found.where(f.col("kind") == Kind.UNREADABLE.value).select("key").distinct()


def totals(blobs: DataFrame) -> DataFrame:
    """Return `kind`, `count` and `bytes`, a row for each kind of blob."""
    return blobs.groupBy(f.substring_index("key", "/", 1).alias("kind")).agg(
        f.count("*").alias("count"), f.sum("length").alias("bytes")
    )


def _kept(found: DataFrame) -> DataFrame:
    return found.where(f.col("kind").isin(*_KEEPING)).select("key").distinct()
