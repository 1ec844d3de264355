"""Which hours a run makes anew."""

from dataclasses import dataclass
from datetime import UTC, date, datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from packhorse_services.pipeline.measures.announced import SUBSCRIPTION_KEY
from packhorse_services.pipeline.measures.outcomes import decided, facts, sent
from packhorse_services.pipeline.measures.times import HOUR_MS, hour_of

_MOST_SINGLE = 500


@dataclass(frozen=True, slots=True)
class Hours:
    """All hours from `since_ms` on, and single ones before it; in milliseconds since 1970 UTC."""

    since_ms: int
    single_ms: tuple[int, ...] = ()

    @property
    def begin_ms(self) -> int:
        """The first of them."""
        return min([self.since_ms, *self.single_ms])

    @property
    def begin_day(self) -> date:
        """The day of the first of them."""
        return _at(self.begin_ms).date()

    @property
    def partial_days(self) -> list[date]:
        """The days of which it may be only some hours; after `since_ms` it is whole days."""
        return sorted({_at(each).date() for each in (self.since_ms, *self.single_ms)})

    def touches(self, day: date) -> bool:
        """Return whether one of them is on this day."""
        return day >= _at(self.since_ms).date() or day in self.partial_days

    def condition(self) -> str:
        """Return the SQL condition that rows with `day` and `hour` must meet."""
        single = ", ".join(map(_literal, self.single_ms))
        one_of = f" OR hour IN ({single})" if single else ""
        later = f"hour >= {_literal(self.since_ms)}{one_of}"
        return f"day >= DATE '{self.begin_day.isoformat()}' AND ({later})"


def hours(since_ms: int | None, single_ms: list[int]) -> Hours | None:
    """Return what both name together; None when that is nothing.

    Very many single hours, or single ones alone, become all hours from one on.
    """
    if since_ms is None and not single_ms:
        return None
    earlier = sorted(each for each in set(single_ms) if since_ms is None or each < since_ms)
    if since_ms is None:
        since_ms = earlier.pop()
    if len(earlier) > _MOST_SINGLE:
        return Hours(earlier[0])
    return Hours(since_ms, tuple(earlier))


def not_before(found: Hours | None, moment_ms: int) -> Hours | None:
    """Return of these hours the ones from a moment on; None for None."""
    if found is None or moment_ms <= found.begin_ms:
        return found
    later = tuple(each for each in found.single_ms if each >= moment_ms)
    return Hours(max(found.since_ms, moment_ms), later)


def begin_of(moment_ms: int) -> int:
    """Return the beginning of a moment's hour; both in milliseconds since 1970 UTC."""
    return moment_ms // HOUR_MS * HOUR_MS


def since(new_rows: DataFrame) -> Column:
    """Return the hour of the earliest of rows with the journal's `time`, as milliseconds."""
    return f.unix_millis(hour_of(f.min(f.unix_millis(new_rows["time"]))))


def of_decisions(
    new: DataFrame, statuses: DataFrame, packages: DataFrame, subscriptions: DataFrame
) -> DataFrame:
    """Return the hours, as `hour`, that new statuses change.

    Of every decision on their packages, for one that comes late may be the first one; and the
    hour in which the subscription came up to the package by its announcements, where it may be
    counted as imported. `subscriptions` has the columns of `schemas.SUBSCRIPTIONS`.
    """
    keys = sent(new).select(*SUBSCRIPTION_KEY, "offset").distinct()
    again = sent(statuses).join(keys, [*SUBSCRIPTION_KEY, "offset"], "left_semi")
    found = decided(again, facts(packages)).select(hour_of(f.col("outcome_ms")).alias("hour"))
    return found.unionByName(_reached(keys, subscriptions)).distinct()


def _reached(keys: DataFrame, subscriptions: DataFrame) -> DataFrame:
    """Return the first hour of each subscription by whose end it had come up to a package."""
    marks = subscriptions.select(*SUBSCRIPTION_KEY, f.col("reached").alias("offset"), "hour")
    downwards = Window.partitionBy(*SUBSCRIPTION_KEY).orderBy(
        f.col("offset").desc(), f.col("hour").desc_nulls_last()
    )
    above = f.last("hour", ignorenulls=True).over(downwards)
    both = keys.unionByName(marks, allowMissingColumns=True)
    return (
        both.withColumn("above", above)
        .where("hour IS NULL AND above IS NOT NULL")
        .select(f.col("above").alias("hour"))
    )


def _at(moment_ms: int) -> datetime:
    return datetime.fromtimestamp(moment_ms / 1000, UTC)


def _literal(moment_ms: int) -> str:
    return f"TIMESTAMP '{_at(moment_ms):%Y-%m-%d %H:%M:%S}Z'"
