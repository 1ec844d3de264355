"""Content in path order, in partitions of bounded size."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

PARTITION_CHARACTERS = 32 * 1024**2
"""What a partition holds about: whoever takes one whole into memory needs no more than that."""

_MOST_PARTITIONS = 5_000


def partitions_for(characters: int, each: int = PARTITION_CHARACTERS) -> int:
    """Return how many partitions hold about `each` characters of so many."""
    return min(_MOST_PARTITIONS, 1 + characters // each)


def placed(winners: DataFrame, partitions: int) -> DataFrame:
    """Add `partition`, from 0: the one of at most that many that the path belongs to, in order."""
    return winners.repartitionByRange(partitions, "path").withColumn(
        "partition", f.spark_partition_id()
    )


def in_path_order(content: DataFrame, partitions: int) -> DataFrame:
    """Return content in path order, within and across the partitions that each node tells."""
    return content.repartitionById(partitions, "partition").sortWithinPartitions("path")
