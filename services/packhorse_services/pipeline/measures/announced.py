"""What subscriptions report in announcements.

How far they are, what fails, since when nothing moves.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from packhorse_services.pipeline.measures.times import HOUR_MS, day_of, hour_of
from packhorse_services.pipeline.storage.columns import require
from packhorse_services.pipeline.storage.schemas import SUBSCRIPTIONS

STALE_MS = 30_000
"""What a subscription has announced holds for so long when nothing follows (R16)."""

ANNOUNCED_EVERY_MS = 10_000
"""A subscriber announces itself at least as often."""

SUBSCRIPTION_KEY = ["subscriber", "publisher_agent", "journal_id"]


def subscription_rows(announcements: DataFrame, before: DataFrame) -> DataFrame:
    """Return a row for each subscription of each announcement, with what it had announced before.

    `before` has the columns of `schemas.SUBSCRIPTIONS`, one row a subscription: its last row from
    before these announcements; such rows come back with `known` true. Times are the journal's. A
    subscription that names no journal has no position yet and is left out. Columns: those of
    `SUBSCRIPTION_KEY`, `announced_ms`, `sequence`, `offset`, `retries`, `blocked`, `editable`,
    `started_offset`, `last_error`, `hour`, `known`; `reached_before` (the highest offset of all
    earlier rows), `previous_offset`, `previous_retries`, `next_ms`: null where there is no such
    row.
    """
    in_time = Window.partitionBy(*SUBSCRIPTION_KEY).orderBy("announced_ms", "sequence", "offset")
    earlier = in_time.rowsBetween(Window.unboundedPreceding, -1)
    return (
        _subscriptions(announcements)
        .unionByName(_known(before))
        .withColumns(
            {
                "reached_before": f.max("reached").over(earlier),
                "previous_offset": f.lag("offset").over(in_time),
                "previous_retries": f.lag("retries").over(in_time),
                "next_ms": f.lead("announced_ms").over(in_time),
            }
        )
        .drop("reached")
    )


def _subscriptions(announcements: DataFrame) -> DataFrame:
    subscription = f.explode("subscriptions").alias("subscription")
    rows = announcements.select("subscriber", "editable", "time", "offset", subscription)
    blocked = (f.col("subscription.state") == "BLOCKED") | (
        (f.col("subscription.state") == "RUNNING") & (f.col("subscription.blocked_since_ms") > 0)
    )
    return rows.where("subscription.journal_id <> ''").select(
        "subscriber",
        "subscription.publisher_agent",
        "subscription.journal_id",
        f.unix_millis("time").alias("announced_ms"),
        f.col("offset").alias("sequence"),
        "subscription.offset",
        "subscription.retries",
        blocked.alias("blocked"),
        "editable",
        "subscription.started_offset",
        "subscription.last_error",
        hour_of(f.unix_millis("time")).alias("hour"),
        f.lit(False).alias("known"),
        f.col("subscription.offset").alias("reached"),
    )


def _known(before: DataFrame) -> DataFrame:
    return before.select(
        *SUBSCRIPTION_KEY,
        *("announced_ms", "sequence", "offset", "retries", "blocked", "editable"),
        f.lit(-1).cast("long").alias("started_offset"),
        f.lit("").alias("last_error"),
        *("hour", f.lit(True).alias("known"), "reached"),
    )


def subscription_hours(rows: DataFrame) -> DataFrame:
    """Return `schemas.SUBSCRIPTIONS`: of `subscription_rows` the last of each hour."""
    order = f.struct("announced_ms", "sequence", "offset")
    kept = ["announced_ms", "sequence", "offset", "retries", "blocked", "editable"]
    found = (
        rows.where("NOT known")
        .groupBy(*SUBSCRIPTION_KEY, "hour")
        .agg(
            f.max_by(f.struct(*kept), order).alias("last"),
            f.max(f.greatest("offset", "reached_before")).alias("reached"),
        )
        .select(*SUBSCRIPTION_KEY, "hour", day_of(f.col("hour")).alias("day"), "last.*", "reached")
    )
    return require(found, SUBSCRIPTIONS, "subscriptions")


def last_before(subscriptions: DataFrame, moment: Column) -> DataFrame:
    """Return each subscription's last row from before `moment`, as `subscription_rows` takes it."""
    columns = f.struct(*SUBSCRIPTIONS.fieldNames())
    earlier = subscriptions.where(f.col("hour") < moment).groupBy(*SUBSCRIPTION_KEY)
    return earlier.agg(f.max_by(columns, f.col("hour")).alias("last")).select("last.*")


def blocked_hours(rows: DataFrame) -> DataFrame:
    """Return subscriber, publisher_agent, hour, blocked_ms: time with a failed package in front.

    A subscription that announced so is blocked until it announces something else, or is silent for
    `STALE_MS`.
    """
    end = f.least(f.col("next_ms"), f.col("announced_ms") + STALE_MS)  # ignores null
    within = f.least("end_ms", f.col("hour_ms") + HOUR_MS) - f.greatest("announced_ms", "hour_ms")
    first = f.unix_millis(hour_of(f.col("announced_ms")))
    last = f.unix_millis(hour_of(f.col("end_ms")))
    return (
        rows.where("blocked")
        .withColumn("end_ms", end)
        .withColumn("hour_ms", f.explode(f.sequence(first, last, f.lit(HOUR_MS))))
        .withColumn("hour", hour_of(f.col("hour_ms")))
        .groupBy("subscriber", "publisher_agent", "hour")
        .agg(f.sum(within).alias("blocked_ms"))
    )


def attempts_announced(rows: DataFrame, given_up: DataFrame, packages: DataFrame) -> DataFrame:
    """Return of packages that were given up how many failed attempts announcements reported.

    An announcement with `retries` is about the first package above its offset. Columns: those of
    `SUBSCRIPTION_KEY`, the package's `offset`, `reported`; a package that none reported has no row.
    """
    front = ["publisher_agent", "journal_id"]
    failed = rows.where("retries > 0").select(
        *SUBSCRIPTION_KEY, f.col("offset").alias("behind"), "retries"
    )
    about = (
        failed.join(given_up.select(*SUBSCRIPTION_KEY, "offset"), SUBSCRIPTION_KEY)
        .where("behind < offset")
        .groupBy(*SUBSCRIPTION_KEY, "behind")
        .agg(f.min("offset").alias("offset"), f.max("retries").alias("retries"))
    )
    between = packages.select(*front, f.col("offset").alias("other"))
    nearer = about.join(between, front).where("behind < other AND other < offset")
    return (
        about.join(nearer, [*SUBSCRIPTION_KEY, "behind"], "left_anti")
        .groupBy(*SUBSCRIPTION_KEY, "offset")
        .agg(f.max("retries").alias("reported"))
    )


def failed_attempts(rows: DataFrame) -> DataFrame:
    """Return subscriber, publisher_agent, hour, reason, count: failed attempts that were announced.

    That is by how much `retries` rose since the row before, or all of them when the subscription
    has another package in front by now.
    """
    same = f.col("previous_offset") == f.col("offset")
    earlier = f.when(same, f.col("previous_retries")).otherwise(f.lit(0))
    return (
        rows.where("NOT known")
        .withColumn("rise", f.col("retries") - f.coalesce(earlier, f.lit(0)))
        .where("rise > 0")
        .groupBy("subscriber", "publisher_agent", "hour", f.col("last_error").alias("reason"))
        .agg(f.sum("rise").alias("count"))
    )
