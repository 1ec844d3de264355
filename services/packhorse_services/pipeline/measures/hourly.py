"""The tables of measures: what happened, by the hour."""

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from packhorse_services.pipeline import schemas
from packhorse_services.pipeline.measures.outcomes import facts
from packhorse_services.pipeline.measures.times import day_of, hour_of

SLOWEST_SHOWN = 20
"""So many packages of a subscriber, publisher agent and hour are kept as the slowest."""

MOST_TEXT = 500
"""Characters of a reason or path that are kept."""

_KEY = ["subscriber", "publisher_agent", "hour"]
_COUNTS = [
    *("delivered", "bytes", "nodes", "removed", "skipped"),
    *("failures", "backlog_end", "blocked_ms"),
]


def delivery(
    outcomes: DataFrame, failures: DataFrame, backlog: DataFrame, blocked: DataFrame
) -> DataFrame:
    """Return `schemas.DELIVERY`: a row where any of the four has one.

    `failures` is as `schemas.FAILURES`. Each delivered package took one attempt more than failed.
    """
    failed = failures.groupBy(*_KEY).agg(f.sum("count").alias("failures"))
    parts = [_delivered(outcomes), failed, backlog, blocked]
    whole = reduce(lambda left, right: left.join(right, _KEY, "full_outer"), parts)
    for count in _COUNTS:
        whole = whole.withColumn(count, f.coalesce(f.col(count), f.lit(0)).cast("long"))
    editable = f.coalesce("editable", "tells", f.lit(False))
    found = (
        whole.withColumn("editable", editable)
        .withColumn("attempts", f.col("delivered") + f.col("failures"))
        .withColumn("day", day_of(f.col("hour")))
    )
    return schemas.require(found, schemas.DELIVERY, "delivery")


def _delivered(outcomes: DataFrame) -> DataFrame:
    imported = f.col("status") == "IMPORTED"
    removed = f.col("status").isin("REMOVED", "REMOVED_FAILED")
    found = outcomes.groupBy(*_KEY).agg(
        f.count_if(imported).alias("delivered"),
        *_latency(f.when(imported, f.col("latency_ms"))),
        f.sum(f.when(imported, f.col("body_length"))).alias("bytes"),
        f.sum(f.when(imported, f.col("node_count"))).alias("nodes"),
        f.count_if(removed).alias("removed"),
        f.count_if(f.col("status") == "SKIPPED").alias("skipped"),
        # Only an editable subscriber tells of what a command removed.
        f.bool_or(f.col("status") == "REMOVED").alias("tells"),
    )
    return _spread(found)


def _latency(latency: Column) -> list[Column]:
    shares = f.percentile(latency, [0.5, 0.95, 0.99])
    return [shares.alias("shares"), f.max(latency).alias("latency_max_ms")]


def _spread(found: DataFrame) -> DataFrame:
    for position, name in enumerate(["p50", "p95", "p99"]):
        share = f.round(f.col("shares")[position]).cast("long")
        found = found.withColumn(f"latency_{name}_ms", share)
    return found.drop("shares")


def failures(outcomes: DataFrame, told: DataFrame) -> DataFrame:
    """Return `schemas.FAILURES`: the failed attempts that lanes told of, and the last ones.

    `told` is as `told.failed_attempts` returns. The attempt after which a subscriber gave up is
    in no announcement: each REMOVED_FAILED stands for one, with its reason.
    """
    given_up = outcomes.where("status = 'REMOVED_FAILED'").select(
        *_KEY, "reason", f.lit(1).cast("long").alias("count")
    )
    found = (
        told.unionByName(given_up)
        .withColumn("reason", f.substring("reason", 1, MOST_TEXT))
        .groupBy(*_KEY, "reason")
        .agg(f.sum("count").alias("count"))
        .withColumn("day", day_of(f.col("hour")))
    )
    return schemas.require(found, schemas.FAILURES, "failures")


def slowest(outcomes: DataFrame) -> DataFrame:
    """Return `schemas.SLOWEST`: the imports with the highest latency, the oldest of equals."""
    order = Window.partitionBy(*_KEY).orderBy(f.col("latency_ms").desc(), "offset", "journal_id")
    found = (
        outcomes.where("status = 'IMPORTED'")
        .withColumn("rank", f.row_number().over(order))
        .where(f.col("rank") <= SLOWEST_SHOWN)
        .withColumn("path", f.substring("path", 1, MOST_TEXT))
        .withColumn("day", day_of(f.col("hour")))
    )
    return schemas.require(found, schemas.SLOWEST, "slowest")


def publishing(packages: DataFrame) -> DataFrame:
    """Return `schemas.PUBLISHING` from `schemas.PACKAGES`, by the hour of the journal's time."""
    latency = f.col("time_ms") - f.col("accepted_ms")
    actions = {"adds": "ADD", "deletes": "DELETE", "invalidates": "INVALIDATE", "tests": "TEST"}
    found = (
        facts(packages)
        .withColumn("hour", hour_of(f.col("time_ms")))
        .groupBy("publisher_agent", "hour")
        .agg(
            f.count(f.lit(1)).alias("packages"),
            *[
                f.count_if(f.col("action") == action).alias(name)
                for name, action in actions.items()
            ],
            f.sum("body_length").alias("bytes"),
            f.sum("node_count").alias("nodes"),
            *_latency(latency),
        )
        .withColumn("day", day_of(f.col("hour")))
    )
    return schemas.require(_spread(found), schemas.PUBLISHING, "publishing")
