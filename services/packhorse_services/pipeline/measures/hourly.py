"""The tables of measures: what happened, by the hour."""

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from packhorse.bookkeeping.positions import LEFT_OUT
from packhorse.wire.messages import Action
from packhorse_services.pipeline.measures import announced
from packhorse_services.pipeline.measures.outcomes import facts
from packhorse_services.pipeline.measures.times import HOUR_MS, day_of, hour_of
from packhorse_services.pipeline.storage import columns, schemas

SLOWEST_SHOWN = 20
"""So many packages of a subscriber, publisher agent and hour are kept as the slowest."""

MOST_TEXT = 500
"""Characters of a reason or path that are kept."""

COUNTED_ACTIONS = {
    "adds": Action.ADD,
    "deletes": Action.DELETE,
    "invalidates": Action.INVALIDATE,
    "tests": Action.TEST,
}
"""The columns that count the packages of an action."""

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
    counts = {name: f.coalesce(name, f.lit(0)).cast("long") for name in _COUNTS}
    found = whole.withColumns(
        {
            **counts,
            "editable": f.coalesce("editable", "reports", f.lit(False)),
            "attempts": counts["delivered"] + counts["failures"],
            "day": day_of(f.col("hour")),
        }
    )
    return columns.require(found, schemas.DELIVERY, "delivery")


def _delivered(outcomes: DataFrame) -> DataFrame:
    imported = f.col("status") == "IMPORTED"
    removed = f.col("status").isin("REMOVED", "REMOVED_FAILED")
    found = outcomes.groupBy(*_KEY).agg(
        f.count_if(imported).alias("delivered"),
        *_latency(f.when(imported, f.col("latency_ms"))),
        f.sum(f.when(imported, f.col("body_length"))).alias("bytes"),
        f.sum(f.when(imported, f.col("node_count"))).alias("nodes"),
        f.count_if(removed).alias("removed"),
        f.count_if(f.col("status").isin("SKIPPED", LEFT_OUT)).alias("skipped"),
        # Only an editable subscriber reports what a command removed.
        f.bool_or(f.col("status") == "REMOVED").alias("reports"),
    )
    return _spread(found)


def _latency(latency: Column) -> list[Column]:
    shares = f.percentile(latency, [0.5, 0.95, 0.99])
    return [shares.alias("shares"), f.max(latency).alias("latency_max_ms")]


def _spread(found: DataFrame) -> DataFrame:
    shares = {
        f"latency_{name}_ms": f.round(f.col("shares")[position]).cast("long")
        for position, name in enumerate(["p50", "p95", "p99"])
    }
    return found.withColumns(shares)


def failures(outcomes: DataFrame, rows: DataFrame, packages: DataFrame) -> DataFrame:
    """Return `schemas.FAILURES`: the failed attempts that were announced, and those that were not.

    The status of a package that was given up says how many attempts it had. Announcements come
    every few seconds, so that by chance they report all of these, some, or none.
    """
    given_up = outcomes.where("status = 'REMOVED_FAILED'")
    key = [*announced.SUBSCRIPTION_KEY, "offset"]
    reported = announced.attempts_announced(rows, given_up, packages)
    rest = given_up.join(reported, key, "left").select(
        *_KEY, "reason", (f.col("attempts") - f.coalesce("reported", f.lit(0))).alias("count")
    )
    found = (
        announced.failed_attempts(rows)
        .unionByName(rest.where("count > 0"))
        .withColumn("reason", f.substring("reason", 1, MOST_TEXT))
        .groupBy(*_KEY, "reason")
        .agg(f.sum("count").alias("count"))
        .withColumn("day", day_of(f.col("hour")))
    )
    return columns.require(found, schemas.FAILURES, "failures")


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
    return columns.require(found, schemas.SLOWEST, "slowest")


def publishing(packages: DataFrame) -> DataFrame:
    """Return `schemas.PUBLISHING` from `schemas.PACKAGES`, by the hour of the journal's time."""
    latency = f.col("time_ms") - f.col("accepted_ms")
    found = (
        facts(packages)
        .withColumn("hour", hour_of(f.col("time_ms")))
        .groupBy("publisher_agent", "hour")
        .agg(
            f.count(f.lit(1)).alias("packages"),
            *[
                f.count_if(f.col("action") == action.value).alias(name)
                for name, action in COUNTED_ACTIONS.items()
            ],
            f.sum("body_length").alias("bytes"),
            f.sum("node_count").alias("nodes"),
            *_latency(latency),
        )
        .withColumn("day", day_of(f.col("hour")))
    )
    return columns.require(_spread(found), schemas.PUBLISHING, "publishing")


_LOG = ["publisher_agent", "journal_id"]
_POINT = ["subscriber", "hour"]


def backlog(subscriptions: DataFrame, known: DataFrame) -> DataFrame:
    """Return subscriber, publisher_agent, hour, backlog_end, editable of `schemas.SUBSCRIPTIONS`.

    `known` are packages as `outcomes.facts` returns them: at least those above the lowest offset
    of the subscriptions. The count is of those that were in the journal when the hour ended, less
    those up to the subscription's offset; two sorts, no join of ranges.
    """
    ended = f.unix_millis("hour") + HOUR_MS - 1
    there = _up_to(subscriptions, known, ended, f.col("time_ms"), "there")
    done = _up_to(subscriptions, known, f.col("offset"), f.col("offset"), "done")
    left = subscriptions.join(there, _LOG + _POINT).join(done, _LOG + _POINT)
    waiting = f.greatest(f.lit(0), f.col("there") - f.col("done"))
    # After a change of the journal an hour has two subscriptions; the last one counts.
    last = f.max_by(f.struct(waiting.alias("backlog_end"), "editable"), f.col("announced_ms"))
    return (
        left.groupBy("subscriber", "publisher_agent", "hour")
        .agg(last.alias("last"))
        .select("subscriber", "publisher_agent", "hour", "last.*")
    )


def _up_to(
    subscriptions: DataFrame, known: DataFrame, at: Column, key: Column, name: str
) -> DataFrame:
    """Return how many packages of each subscription and hour have a `key` of at most `at`."""
    points = subscriptions.select(*_LOG, *_POINT, at.alias("at"), f.lit(0).alias("one"))
    counted = known.select(*_LOG, key.alias("at"), f.lit(1).alias("one"))
    upwards = Window.partitionBy(*_LOG).orderBy("at")  # rows of one place count together
    return (
        points.unionByName(counted, allowMissingColumns=True)
        .withColumn(name, f.sum("one").over(upwards))
        .where("subscriber IS NOT NULL")
        .select(*_LOG, *_POINT, name)
    )
