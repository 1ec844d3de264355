"""Content in path order, in partitions of bounded size."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

PARTITION_CHARACTERS = 32 * 1024**2
"""What a partition holds about: whoever takes one whole into memory needs no more than that."""

_MOST_PARTITIONS = 5_000


def partitions_for(content: DataFrame, characters: int = PARTITION_CHARACTERS) -> int:
    """Return how many partitions hold about that much of the content each; reads all of it."""
    size = sum((f.length(name) for name in ("path", "properties", "binaries")), f.lit(0))
    found = content.agg(f.sum(size).alias("size")).collect()[0].size
    return min(_MOST_PARTITIONS, 1 + int(found or 0) // characters)


def in_path_order(content: DataFrame, partitions: int) -> DataFrame:
    """Return the content in path order, within and across that many partitions at most."""
    return content.repartitionByRange(partitions, "path").sortWithinPartitions("path")
