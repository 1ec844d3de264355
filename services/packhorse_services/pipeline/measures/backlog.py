"""How much a lane had still to import at the end of an hour."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from packhorse_services.pipeline.measures.times import HOUR_MS

_LOG = ["publisher_agent", "journal_id"]
_POINT = ["subscriber", "hour"]


def backlog(lanes: DataFrame, known: DataFrame) -> DataFrame:
    """Return subscriber, publisher_agent, hour, backlog_end, editable, from `schemas.LANES`.

    `known` are packages as `outcomes.facts` returns them: at least those above the lowest offset
    of the lanes. The count is of those that were in the journal when the hour ended, less those
    up to the lane's offset; two sorts, no join of ranges.
    """
    ended = f.unix_millis("hour") + HOUR_MS - 1
    there = _up_to(lanes, known, ended, f.col("time_ms"), "there")
    done = _up_to(lanes, known, f.col("offset"), f.col("offset"), "done")
    left = lanes.join(there, _LOG + _POINT).join(done, _LOG + _POINT)
    waiting = f.greatest(f.lit(0), f.col("there") - f.col("done"))
    # After a change of the journal an hour has two lanes; the last one told what is so.
    last = f.max_by(f.struct(waiting.alias("backlog_end"), "editable"), f.col("announced_ms"))
    return (
        left.groupBy("subscriber", "publisher_agent", "hour")
        .agg(last.alias("last"))
        .select("subscriber", "publisher_agent", "hour", "last.*")
    )


def _up_to(lanes: DataFrame, known: DataFrame, at: Column, key: Column, name: str) -> DataFrame:
    """Return for each lane and hour how many packages have a `key` that is not above `at`."""
    points = lanes.select(*_LOG, *_POINT, at.alias("at"), f.lit(0).alias("one"))
    counted = known.select(*_LOG, key.alias("at"), f.lit(1).alias("one"))
    upwards = Window.partitionBy(*_LOG).orderBy("at")  # rows of one place count together
    return (
        points.unionByName(counted, allowMissingColumns=True)
        .withColumn(name, f.sum("one").over(upwards))
        .where("subscriber IS NOT NULL")
        .select(*_LOG, *_POINT, name)
    )
