"""What became of each package at each subscriber, and when."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from packhorse_services.pipeline.measures.announced import ANNOUNCED_EVERY_MS, SUBSCRIPTION_KEY
from packhorse_services.pipeline.measures.times import believed, hour_of

_FACTS = ["package_id", "path", "paths", "body_length", "node_count", "accepted_ms", "time_ms"]
_DECISION = ["status", "reason", "attempts"]


def facts(packages: DataFrame) -> DataFrame:
    """Return of `schemas.PACKAGES` what measures need: key, first path, sizes, sane times."""
    paths = f.concat("deep_paths", "paths")
    recorded = f.unix_millis("time")
    return packages.select(
        *("publisher_agent", "journal_id", "offset", "package_id", "action"),
        *("body_length", "node_count"),
        f.coalesce(f.try_element_at(paths, f.lit(1)), f.lit("")).alias("path"),
        f.size(paths).cast("long").alias("paths"),
        believed(f.col("accepted_ms"), recorded).alias("accepted_ms"),
        recorded.alias("time_ms"),
    )


def sent(statuses: DataFrame) -> DataFrame:
    """Return the subscription, offset, status, reason, time and order of `schemas.STATUSES`."""
    recorded = f.unix_millis("time")
    return statuses.select(
        *("subscriber", "publisher_agent", f.col("package_journal_id").alias("journal_id")),
        f.col("package_offset").alias("offset"),
        "status",
        "reason",
        "attempts",
        believed(f.col("decided_ms"), recorded).alias("decided_ms"),
        f.struct(recorded.alias("ms"), "partition", "offset").alias("place"),
    )


def first_of(decisions: DataFrame) -> DataFrame:
    """Return of `sent` the first decision on each package; a repeat means nothing new (R9)."""
    return (
        decisions.groupBy(*SUBSCRIPTION_KEY, "offset")
        .agg(f.min_by(f.struct(*_DECISION, "decided_ms"), "place").alias("first"))
        .select(*SUBSCRIPTION_KEY, "offset", "first.*")
    )


def decided(decisions: DataFrame, known: DataFrame) -> DataFrame:
    """Return decisions with the facts of their packages and `outcome_ms`.

    Nothing happened to a package before the journal had it, whatever a subscriber's clock says.
    Decisions on packages that the archive does not hold are left out.
    """
    found = decisions.join(known, ["publisher_agent", "journal_id", "offset"])
    return found.select(
        *(*SUBSCRIPTION_KEY, "offset", *_DECISION),
        f.greatest("decided_ms", "time_ms").alias("outcome_ms"),
        *_FACTS,
    )


def announced(rows: DataFrame, known: DataFrame) -> DataFrame:
    """Return the imports of subscribers that send no status for them, as `decided` does.

    A package was imported when the first announcement came whose offset is not below its own,
    unless the subscription began behind it. Of a subscription that nothing was known of, only what
    is at most one interval older than its first announcement counts: when it got the rest is not
    known.
    """
    reaches = rows.where("NOT known").where("offset > coalesce(reached_before, -2)")
    covered = _with_next_reach(_reached(reaches, known), reaches)
    in_time = f.col("time_ms") >= f.col("reach.announced_ms") - ANNOUNCED_EVERY_MS
    imported = covered.where("NOT reach.editable AND offset > reach.started_offset").where(
        f.col("reach.reached_before").isNotNull() | in_time
    )
    return imported.select(
        *SUBSCRIPTION_KEY,
        "offset",
        f.lit("IMPORTED").alias("status"),
        f.lit("").alias("reason"),
        f.lit(1).cast("long").alias("attempts"),
        f.greatest("reach.announced_ms", "time_ms").alias("outcome_ms"),
        *_FACTS,
    )


def _reached(reaches: DataFrame, known: DataFrame) -> DataFrame:
    """Return the packages between the first and last announced offset of each subscription."""
    spans = (
        reaches.groupBy(*SUBSCRIPTION_KEY)
        .agg(
            f.min(f.coalesce("reached_before", f.lit(-1))).alias("low"),
            f.max("offset").alias("high"),
            f.bool_and("editable").alias("reports"),
        )
        .where("NOT reports")
    )
    return (
        known.join(f.broadcast(spans), ["publisher_agent", "journal_id"])
        .where("offset > low AND offset <= high")
        .select(*SUBSCRIPTION_KEY, "offset", *_FACTS)
    )


def _with_next_reach(packages: DataFrame, reaches: DataFrame) -> DataFrame:
    """Return the packages, each with the announcement that first came up to it, by one sort."""
    reach = f.struct("announced_ms", "editable", "started_offset", "reached_before")
    marks = reaches.select(*SUBSCRIPTION_KEY, "offset", reach.alias("reach"))
    # Downwards, and at one offset the announcement first: the last one seen is the next above.
    downwards = Window.partitionBy(*SUBSCRIPTION_KEY).orderBy(
        f.col("offset").desc(), f.col("package_id").isNull().desc()
    )
    both = packages.unionByName(marks, allowMissingColumns=True)
    return both.withColumn("reach", f.last("reach", ignorenulls=True).over(downwards)).where(
        "package_id IS NOT NULL AND reach IS NOT NULL"
    )


def outcomes(rows: DataFrame, statuses: DataFrame, packages: DataFrame) -> DataFrame:
    """Return a row for each package at each subscriber: what became of it, in which hour.

    From `subscription_rows`, `schemas.STATUSES` and `schemas.PACKAGES`. A status goes before what
    announcements suggest. Columns: those of `SUBSCRIPTION_KEY`, offset, status, reason, outcome_ms,
    hour, latency_ms (accepted → outcome, never negative), and the facts of the package.
    """
    known, decisions = facts(packages), first_of(sent(statuses))
    silent = announced(rows, known).join(decisions, [*SUBSCRIPTION_KEY, "offset"], "left_anti")
    return (
        decided(decisions, known)
        .unionByName(silent)
        .withColumns(
            {
                "hour": hour_of(f.col("outcome_ms")),
                "latency_ms": f.col("outcome_ms") - f.col("accepted_ms"),
            }
        )
    )
