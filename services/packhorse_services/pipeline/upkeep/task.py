"""The task `upkeep`."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from packhorse.snapshots.snapshot import ContentSnapshot
from packhorse_services.pipeline.engine.spark_errors import translated
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.measures.times import midnight
from packhorse_services.pipeline.storage import arrow_files, compaction, delta, tables
from packhorse_services.pipeline.storage.delta import SILVER, is_decoded, load, opened, stored
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.table_files import files_of
from packhorse_services.pipeline.upkeep import expiry
from packhorse_services.pipeline.upkeep.expiry import (
    Needed,
    covered,
    followed,
    needed,
)

LEAST_DAYS = 8
"""Of a retention: what is younger may still be read by a stream, or corrected by a late record."""

ARCHIVE = (tables.BRONZE, *SILVER)
"""What has days and expires; the accepted gaps have none, and stay."""
_UNPARTITIONED = (tables.MEASURED, tables.GAPS)
MEASURES = tuple(name for name in delta.MEASURES if name not in _UNPARTITIONED)


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """What is kept: days from `archive_from` and, of measures, from `measures_from` (None: all)."""

    today: date
    archive_from: date
    measures_from: date | None
    held_by: Needed | None
    """What keeps days that the retention would have deleted."""
    unread_from: date | None = None
    """The first day of bronze that silver has not read; it is not deleted."""


def plan(
    spark: SparkSession,
    location: Location,
    snapshots: Iterable[ContentSnapshot] | None,
    *,
    retention_days: int,
    measures_days: int | None,
    now: datetime | None = None,
) -> RetentionPlan:
    """Return what a run keeps; `snapshots` None: also what no snapshot holds may go.

    Raises `TaskRefused` for a retention below `LEAST_DAYS`, and `TablesUnusable` when there is no
    archive.
    """
    if min(retention_days, LEAST_DAYS if measures_days is None else measures_days) < LEAST_DAYS:
        raise TaskRefused(f"a retention is at least {LEAST_DAYS} days; ask for more")
    today = (now or datetime.now(UTC)).date()
    begin = today - timedelta(days=retention_days)
    measures_from = None if measures_days is None else today - timedelta(days=measures_days)
    with translated("upkeep"):
        stored(location, tables.PACKAGES)  # without it nobody knows which bodies may go
        held = None if snapshots is None else _held(spark, location, snapshots, begin)
        unread = first_unread(location)
    if held is not None and held.day >= begin:
        held = None
    days = [begin, *([held.day] if held else []), *([unread] if unread else [])]
    return RetentionPlan(today, min(days), measures_from, held, unread)


def _held(
    spark: SparkSession, location: Location, snapshots: Iterable[ContentSnapshot], begin: date
) -> Needed | None:
    """Return the first package that must stay, for no snapshot holds it; None: there is none."""
    packages = load(spark, location, tables.PACKAGES)
    reported = load(spark, location, tables.ANNOUNCEMENTS)
    sets = followed(reported.where(f.col("day") >= f.lit(begin)))
    return needed(packages, covered(packages, snapshots, sets))


def expected(spark: SparkSession, location: Location, planned: RetentionPlan) -> dict[str, int]:
    """Return how much `keep_up` would delete now: rows by table, and other things by kind."""
    found: dict[str, int] = {}
    with translated("upkeep"):
        for table, before in _expiring(location, planned):
            files = files_of(stored(location, table))
            found[table] = sum(one.rows for one in files if one.day < before)
            if table == tables.STATUSES and found[table]:
                said = load(spark, location, tables.STATUSES)
                found[table] = expiry.expired_statuses(said, before).count()
        packages = load(spark, location, tables.PACKAGES)
        there = packages.where(f"day >= DATE '{planned.archive_from}'")
        found["audits and marks"] = len(old_runs(location, planned.archive_from))
        found[tables.BODIES] = _expired_bodies(spark, location, there, planned).count()
    return found


def keep_up(
    spark: SparkSession, location: Location, planned: RetentionPlan, report: Callable[[str], None]
) -> None:
    """Delete what has expired, compact what is finished, and delete unused files.

    Rows go before the bodies that they refer to. Every step may be done again; a run that was
    killed is simply run again.
    """
    with translated("upkeep"):
        for table, before in _expiring(location, planned):
            if table == tables.STATUSES:
                expiry.expire_statuses(spark, location, before)
            else:
                expiry.expire(location, table, before)
        report(f"the archive begins at {planned.archive_from}")
        packages = load(spark, location, tables.PACKAGES)
        gone = _expired_bodies(spark, location, packages, planned)
        expiry.delete_bodies(gone, location.blobs_url(tables.BODIES))
        report("bodies of packages that are gone are deleted")
        for table in _there(location, (*ARCHIVE, *MEASURES)):
            fewer = compaction.compact(spark, location, table, planned.today)
            report(f"{table} has {fewer} files less")
            expiry.vacuum(location, table)
        compaction.compact_dayless(spark, location, tables.GAPS)
        for table in _UNPARTITIONED:
            expiry.vacuum(location, table)
        count = forget_runs(location, planned.archive_from)
        report(f"what {count} audits and marks have left is deleted")


def _expiring(location: Location, planned: RetentionPlan) -> list[tuple[str, date]]:
    found = [(table, planned.archive_from) for table in _there(location, ARCHIVE)]
    if planned.measures_from is not None:
        found += [(table, planned.measures_from) for table in _there(location, MEASURES)]
    return found


def _there(location: Location, names: Iterable[str]) -> list[str]:
    return [name for name in names if opened(location, name) is not None]


def _expired_bodies(
    spark: SparkSession, location: Location, packages: DataFrame, planned: RetentionPlan
) -> DataFrame:
    """Return the bodies that nobody needs, a fold that still reads expired rows included."""
    before = midnight(planned.archive_from) - timedelta(hours=expiry.VACUUM_HOURS)
    found = expiry.listed_bodies(spark, location.blobs_url(tables.BODIES))
    return expiry.expired_bodies(found, packages, int(before.timestamp() * 1000))


def first_unread(location: Location) -> date | None:
    """Return the first day of which bronze may have records that silver has not; None: it has all.

    A batch that the archive has committed in part may be of any day.
    """
    bronze = opened(location, tables.BRONZE)
    if bronze is None or is_decoded(location):
        return None
    return min((one.day for one in files_of(bronze)), default=None)


_ID = re.compile(r"(?:audit|mark)-([0-9]{1,16})-[0-9a-f]{8}")
"""The id of an audit or a mark, with the millisecond in which it began."""


def old_runs(location: Location, before: date) -> list[str]:
    """Return the folders of audits and marks that began before a day."""
    midnight_ms = int(midnight(before).timestamp() * 1000)
    found = (
        (f"{folder}/{name}", _ID.fullmatch(name))
        for folder in (tables.AUDITS, tables.MARKS)
        for name in arrow_files.names(location, folder)
    )
    return [folder for folder, begun in found if begun and int(begun[1]) < midnight_ms]


def forget_runs(location: Location, before: date) -> int:
    """Delete these folders; returns how many there were."""
    there, files = old_runs(location, before), arrow_files.filesystem(location)
    for folder in there:
        files.delete_dir(arrow_files.path(location, folder))
    return len(there)
