"""The task `measures`: read what is new, make the hours that it touches anew, write them."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from packhorse_services.pipeline.engine.kept import kept
from packhorse_services.pipeline.engine.spark_errors import translated
from packhorse_services.pipeline.measures import announced, hourly, hours, outcomes
from packhorse_services.pipeline.measures.changes import Sources, kept_before
from packhorse_services.pipeline.measures.hours import Hours
from packhorse_services.pipeline.measures.times import day_of
from packhorse_services.pipeline.measures.writing import MeasuresTables
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.delta import stored
from packhorse_services.pipeline.storage.location import Location

logger = logging.getLogger(__name__)


def measure(spark: SparkSession, location: Location, *, all_hours: bool = False) -> Hours | None:
    """Bring the measures up to the archive, and return which hours were made anew.

    None when nothing is new. What had been made is remembered at the very end, so that a run that
    was killed is made again, with the same result. `all_hours` makes anew all that the archive
    still holds whole; what was made of days that have expired since is kept. Raises
    `TablesUnusable` when there is no archive, `Overtaken` when another run is at work, and what
    `translated` raises.
    """
    with translated("measures"):
        stored(location, tables.PACKAGES)  # it makes no measures where there is no archive
        written = MeasuresTables.find(spark, location)
        sources = Sources(spark, location)
        known = None if all_hours else sources.measured(written.noted())
        subscriptions = written.rows(tables.SUBSCRIPTIONS)
        wanted = _wanted(sources, known, subscriptions)
        wanted = hours.not_before(
            wanted, kept_before(sources, subscriptions, all_hours=known is None)
        )
        if wanted is not None:
            with _made(sources, subscriptions, wanted) as made:
                for name, frame in made.items():
                    written.replace(name, frame, wanted)
                    logger.info("measures written", extra={"table": name})
        written.note(sources.to_note())
        return wanted


def _wanted(
    sources: Sources, known: dict[str, int] | None, subscriptions: DataFrame
) -> Hours | None:
    """Return the hours that new rows touch; all that there are when nothing is `known`."""
    if known is None:
        times = [time for name in sources.versions if (time := sources.earliest(name)) is not None]
        return hours.hours(min(map(hours.begin_of, times), default=None), [])
    packages, statuses, announcements = tables.PACKAGES, tables.STATUSES, tables.ANNOUNCEMENTS
    # A package or an announcement can matter from its own hour on, and to no earlier one.
    changed = [name for name in (packages, announcements) if sources.has_new(name, known[name])]
    since = _earliest(sources.new(name, known[name]) for name in changed)
    if not sources.has_new(statuses, known[statuses]):
        return hours.hours(since, [])
    new = sources.new(statuses, known[statuses])
    lowest = new.agg(f.min("package_offset")).first()
    if lowest is None or lowest[0] is None:
        return hours.hours(since, [])
    found = hours.of_decisions(
        new,
        sources.all(statuses).where(f.col("package_offset") >= lowest[0]),
        sources.all(packages).where(f.col("offset") >= lowest[0]),
        subscriptions,
    )
    if since is not None:
        found = found.where(f.unix_millis("hour") < since)
    single = [row[0] for row in found.select(f.unix_millis("hour")).toLocalIterator()]
    return hours.hours(since, single)


def _earliest(frames: Iterator[DataFrame]) -> int | None:
    found = [row[0] for frame in frames if (row := frame.agg(hours.since(frame)).first())]
    return min((each for each in found if each is not None), default=None)


@contextmanager
def _made(
    sources: Sources, subscriptions: DataFrame, wanted: Hours
) -> Iterator[dict[str, DataFrame]]:
    """Lend the tables in the order in which they are written, with more hours than are wanted.

    What several of them are made of is kept meanwhile.
    """
    begin = f.timestamp_millis(f.lit(wanted.begin_ms))
    announcements = _from(sources.all(tables.ANNOUNCEMENTS), wanted)
    before = announced.last_before(subscriptions, begin)
    with ExitStack() as stack:

        def keep(frame: DataFrame) -> DataFrame:
            return stack.enter_context(kept(frame))

        rows = keep(announced.subscription_rows(announcements, before))
        statuses, packages = _needed(sources, rows, wanted)
        happened = keep(outcomes.outcomes(rows, statuses, packages))
        failed = keep(hourly.failures(happened, rows, packages))
        here = keep(announced.subscription_hours(rows, day_of(f.col("hour"))))
        waiting = hourly.backlog(here, outcomes.facts(packages))
        blocked = announced.blocked_hours(rows)
        yield {
            tables.PUBLISHING: hourly.publishing(_from(sources.all(tables.PACKAGES), wanted)),
            tables.FAILURES: failed,
            tables.SLOWEST: hourly.slowest(happened),
            tables.DELIVERY: hourly.delivery(happened, failed, waiting, blocked),
            tables.SUBSCRIPTIONS: here,
        }


def _from(rows: DataFrame, wanted: Hours) -> DataFrame:
    begin = f.timestamp_millis(f.lit(wanted.begin_ms))
    return rows.where((f.col("day") >= f.lit(wanted.begin_day)) & (f.col("time") >= begin))


def _needed(sources: Sources, rows: DataFrame, wanted: Hours) -> tuple[DataFrame, DataFrame]:
    """Return the statuses and packages that the hours can depend on, found by their offsets."""
    statuses, packages = sources.all(tables.STATUSES), sources.all(tables.PACKAGES)
    decided = _from(statuses, wanted).agg(f.min("package_offset")).first()
    # A subscription that nothing was known of needs no more than the newest packages before it.
    reached = f.least("offset", f.coalesce("reached_before", "offset"))
    come = rows.where("NOT known").agg(f.min(reached)).first()
    lows = [row[0] for row in (decided, come) if row is not None and row[0] is not None]
    if not lows:
        return statuses.limit(0), packages.limit(0)
    recent = f.timestamp_millis(f.lit(wanted.begin_ms - announced.ANNOUNCED_EVERY_MS))
    return (
        statuses.where((f.col("package_offset") >= min(lows)) | (f.col("time") >= recent)),
        packages.where((f.col("offset") >= min(lows)) | (f.col("time") >= recent)),
    )
