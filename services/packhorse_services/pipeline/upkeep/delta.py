"""What tables hold of each day, statuses that nobody needs, and files that no table has."""

from dataclasses import dataclass
from datetime import date

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from packhorse_services.pipeline import schemas, tables
from packhorse_services.pipeline.archive.files import as_they_are, written
from packhorse_services.pipeline.history.read import archived
from packhorse_services.pipeline.kept_files import files_of, tried_again
from packhorse_services.pipeline.location import Location
from packhorse_services.pipeline.measures.changes import opened
from packhorse_services.pipeline.upkeep.commits import replace
from packhorse_services.pipeline.upkeep.needed import expired_statuses

VACUUM_HOURS = 168
"""Files that a table no longer names stay so long: streams and readers may be that far behind."""

_PLACE = ["day", "journal_id", "partition", "offset"]
"""The columns that say where a record was; no two have the same."""


@dataclass(frozen=True, slots=True)
class Day:
    """What a table holds of one day."""

    files: int
    rows: int


def days(location: Location, table: str) -> dict[date, Day]:
    """Return what a table holds of each day, from its log alone; nothing when it is not there."""
    stored = opened(location, table)
    found: dict[date, Day] = {}
    for one in [] if stored is None else files_of(stored):
        before = found.get(one.day, Day(0, 0))
        found[one.day] = Day(before.files + 1, before.rows + one.rows)
    return found


def old_statuses(spark: SparkSession, location: Location, before: date) -> DataFrame:
    """Return the statuses that `expire_statuses` deletes."""
    said = archived(spark, location, tables.STATUSES, schemas.STATUSES)
    return expired_statuses(said, before)


@tried_again
def expire_statuses(spark: SparkSession, location: Location, before: date) -> None:
    """Delete of the days before `before` the statuses that nobody needs.

    The others of these days are written anew; what an archive run adds meanwhile stays as it is.
    """
    held = opened(location, tables.STATUSES)
    if held is None or not any(one.day < before for one in files_of(held)):
        return
    at = spark.read.format("delta").option("versionAsOf", held.version())
    said = at.load(location.spark_path(tables.STATUSES))
    said = schemas.require(said, schemas.STATUSES, tables.STATUSES)
    old = expired_statuses(said, before).select(*_PLACE).persist()
    try:
        affected = {row["day"] for row in old.select("day").distinct().collect()}
        if not affected:
            return
        kept = said.where(f.col("day").isin(sorted(affected))).join(old, _PLACE, "left_anti")
        write = as_they_are(tables.STATUSES, schemas.STATUSES)
        added = written(kept.select(*schemas.STATUSES.names).coalesce(1), location, write)
    finally:
        old.unpersist()
    gone = [one for one in files_of(held) if one.day in affected]
    replace(held, gone, added, expired=before)


def vacuum(location: Location, table: str) -> None:
    """Delete the files that no version of the last `VACUUM_HOURS` names."""
    stored = opened(location, table)
    if stored is not None and stored.vacuum(VACUUM_HOURS, dry_run=True, full=True):
        stored.vacuum(VACUUM_HOURS, dry_run=False, full=True)
