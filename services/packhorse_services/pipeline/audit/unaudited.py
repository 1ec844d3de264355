"""Subscribers that announce themselves and are in no audit."""

from collections.abc import Collection
from datetime import UTC, date, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from packhorse.clock import SystemClock
from packhorse_services.pipeline.engine.spark_errors import translated
from packhorse_services.pipeline.history.read import archived
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.location import Location

_LIVE_MS = 24 * 3600 * 1000
"""So long a publisher counts a subscriber after its last word."""

_MS = "unix_millis(time)"


def unaudited(spark: SparkSession, location: Location, audited: Collection[str]) -> list[str]:
    """Return the subscribers, by name, that are live and not among those `audited`.

    Live is who announced itself in the day before the newest announcement in the archive: its
    clock is the journal's (R28), and it may not have run for a while. What says a time to come
    does not count.
    """
    now_ms = SystemClock().wall_ms()
    with translated("audit"):
        every = archived(spark, location, tables.ANNOUNCEMENTS)
        reported = every.where(f.expr(_MS) <= now_ms)
        newest_ms = _newest_ms(every.where(f.col("day") <= _day(now_ms)), reported)
        if newest_ms is None:
            return []
        since_ms = newest_ms - _LIVE_MS
        live = reported.where(f.col("day").between(_day(since_ms), _day(newest_ms))).where(
            f.expr(_MS) >= since_ms
        )
        names = live.select("subscriber").distinct().collect()  # one each
        return sorted({row.subscriber for row in names}.difference(audited))


def _newest_ms(every: DataFrame, reported: DataFrame) -> int | None:
    """Return the newest time of `reported`, found by the days that the table is partitioned by."""
    days = (row.day for row in every.select("day").distinct().collect())  # some hundreds
    for day in sorted(days, reverse=True):
        [newest] = reported.where(f.col("day") == day).agg(f.max(f.expr(_MS)).alias("ms")).collect()
        if newest.ms is not None:
            return int(newest.ms)
    return None


def _day(time_ms: int) -> date:
    return datetime.fromtimestamp(time_ms / 1000, UTC).date()
