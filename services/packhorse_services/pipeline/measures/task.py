"""`packhorse-pipeline measures`: the hours that something new touches are made anew."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Annotated

import typer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from packhorse.runtime.configuration import loaded
from packhorse_services.pipeline.engine.session import running_spark
from packhorse_services.pipeline.engine.spark_errors import translated
from packhorse_services.pipeline.measures import announced, changes, hourly, outcomes
from packhorse_services.pipeline.measures.changes import Sources
from packhorse_services.pipeline.measures.times import HOUR_MS, is_from
from packhorse_services.pipeline.measures.writing import MeasuresTables
from packhorse_services.pipeline.pieces import kept
from packhorse_services.pipeline.settings import Settings
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.archive_location import archive_at
from packhorse_services.pipeline.storage.delta import stored
from packhorse_services.pipeline.storage.location import Location

logger = logging.getLogger(__name__)


def measures(
    all_hours: Annotated[
        bool,
        typer.Option("--all", help="Make all hours anew that the archive still holds whole."),
    ] = False,
) -> None:
    """Bring the hourly measures up to what the archive holds."""
    settings = loaded(Settings)
    location = archive_at(settings.tables_url)
    with running_spark(settings, location, "measures") as spark:
        typer.echo(_said(measure(spark, location, all_hours=all_hours)))


def _said(since_ms: int | None) -> str:
    if since_ms is None:
        return "the measures are up to date; nothing is new in the archive"
    since = datetime.fromtimestamp(since_ms / 1000, UTC)
    return f"measures made anew for all hours from {since:%Y-%m-%d %H:00} UTC"


def measure(spark: SparkSession, location: Location, *, all_hours: bool = False) -> int | None:
    """Bring the measures up to the archive, and return from which hour on they were made anew.

    In milliseconds since 1970; None when nothing is new. What had been made is remembered at the
    very end, so that a run that was killed is made again, with the same result. `all_hours` makes
    anew all that the archive still holds whole; what was made of days and packages that have
    expired since is kept. Raises `TablesUnusable` when there is no archive, `Overtaken` when
    another run is at work, and what `translated` raises.
    """
    with translated("measures"):
        stored(location, tables.PACKAGES)  # it makes no measures where there is no archive
        written = MeasuresTables.find(spark, location)
        sources = Sources(spark, location)
        known = None if all_hours else sources.measured(written.noted())
        subscriptions = written.rows(tables.SUBSCRIPTIONS)
        since_ms = _touched(sources, known, subscriptions)
        if since_ms is not None:
            since_ms = changes.made_from(sources, subscriptions, since_ms)
            with _made(sources, subscriptions, since_ms) as made:
                for name, frame in made.items():
                    written.replace(name, frame, since_ms)
                    logger.info("measures written", extra={"table": name})
        written.note(sources.to_note())
        return since_ms


def _touched(
    sources: Sources, known: dict[str, int] | None, subscriptions: DataFrame
) -> int | None:
    """Return the first hour that new rows touch; of all there are when nothing is `known`."""
    if known is None:
        times = [sources.earliest(name) for name in sources.versions]
    else:
        new = {
            name: sources.new(name, after)
            for name, after in known.items()
            if sources.has_new(name, after)
        }
        said = new.pop(tables.STATUSES, None)
        # A package or an announcement can matter from its own hour on, and to no earlier one.
        times = [changes.earliest(rows) for rows in new.values()]
        if said is not None:
            times.append(_decided(sources, said, subscriptions))
    return min((one // HOUR_MS * HOUR_MS for one in times if one is not None), default=None)


def _decided(sources: Sources, new: DataFrame, subscriptions: DataFrame) -> int | None:
    lowest = new.agg(f.min("package_offset")).first()
    if lowest is None or lowest[0] is None:
        return None
    statuses = sources.all(tables.STATUSES).where(f.col("package_offset") >= lowest[0])
    packages = sources.all(tables.PACKAGES).where(f.col("offset") >= lowest[0])
    return changes.earliest_decided(new, statuses, packages, subscriptions)


@contextmanager
def _made(
    sources: Sources, subscriptions: DataFrame, since_ms: int
) -> Iterator[dict[str, DataFrame]]:
    """Lend the tables in the order in which they are written, with more hours than are wanted.

    What several of them are made of is kept meanwhile.
    """
    announcements = sources.all(tables.ANNOUNCEMENTS).where(is_from(since_ms, "time"))
    before = announced.last_before(subscriptions, f.timestamp_millis(f.lit(since_ms)))
    with ExitStack() as stack:

        def keep(frame: DataFrame) -> DataFrame:
            return stack.enter_context(kept(frame))

        rows = keep(announced.subscription_rows(announcements, before))
        statuses, packages = _needed(sources, rows, since_ms)
        happened = keep(outcomes.outcomes(rows, statuses, packages))
        failed = keep(hourly.failures(happened, rows, packages))
        here = keep(announced.subscription_hours(rows))
        waiting = hourly.backlog(here, outcomes.facts(packages))
        blocked = announced.blocked_hours(rows)
        published = sources.all(tables.PACKAGES)
        yield {
            tables.PUBLISHING: hourly.publishing(published.where(is_from(since_ms, "time"))),
            tables.FAILURES: failed,
            tables.SLOWEST: hourly.slowest(happened),
            tables.DELIVERY: hourly.delivery(happened, failed, waiting, blocked),
            tables.SUBSCRIPTIONS: here,
        }


def _needed(sources: Sources, rows: DataFrame, since_ms: int) -> tuple[DataFrame, DataFrame]:
    """Return the statuses and packages that the hours can depend on, found by their offsets."""
    statuses, packages = sources.all(tables.STATUSES), sources.all(tables.PACKAGES)
    decided = statuses.where(is_from(since_ms, "time")).agg(f.min("package_offset")).first()
    # A subscription that nothing was known of needs no more than the newest packages before it.
    reached = f.least("offset", f.coalesce("reached_before", "offset"))
    come = rows.where("NOT known").agg(f.min(reached)).first()
    lows = [row[0] for row in (decided, come) if row is not None and row[0] is not None]
    if not lows:
        return statuses.limit(0), packages.limit(0)
    recent = f.timestamp_millis(f.lit(since_ms - announced.ANNOUNCED_EVERY_MS))
    return (
        statuses.where((f.col("package_offset") >= min(lows)) | (f.col("time") >= recent)),
        packages.where((f.col("offset") >= min(lows)) | (f.col("time") >= recent)),
    )
