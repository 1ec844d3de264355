"""What Delta does to a table, tried again when an archive run got in between."""

from dataclasses import dataclass
from datetime import date

import pyarrow as pa
import stamina
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from packhorse_services.pipeline import schemas, tables
from packhorse_services.pipeline.history.read import archived
from packhorse_services.pipeline.location import Location
from packhorse_services.pipeline.measures.changes import opened
from packhorse_services.pipeline.upkeep.needed import expired_statuses

VACUUM_HOURS = 168
"""Files that a table no longer names stay so long: streams and readers may be that far behind."""

_PLACE = ["day", "journal_id", "partition", "offset"]
"""The columns that say where a record was; no two have the same."""

_EXPIRED = "packhorse_expired"
_CONFLICTS = ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "ConcurrentModification")
_TRIES = 6


@dataclass(frozen=True, slots=True)
class Day:
    """What a table holds of one day."""

    files: int
    rows: int


def days(location: Location, table: str) -> dict[date, Day]:
    """Return what a table holds of each day, from its log alone; nothing when it is not there."""
    stored = opened(location, table)
    if stored is None:
        return {}
    files = pa.table(stored.get_add_actions(flatten=True))
    found = files.group_by("partition.day").aggregate([([], "count_all"), ("num_records", "sum")])
    return {
        row["partition.day"]: Day(row["count_all"], row["num_records_sum"] or 0)
        for row in found.to_pylist()
    }


def compact(spark: SparkSession, location: Location, table: str, before: date) -> int:
    """Put the small files of each day before `before` together; returns how many became fewer."""
    finished = days(location, table).items()
    several = sorted(day for day, held in finished if day < before and held.files > 1)
    if not several:
        return 0
    wanted = ", ".join(map(_literal, several))
    metrics = _run(spark, f"OPTIMIZE {_name(location, table)} WHERE day IN ({wanted})")["metrics"]
    return int(metrics["numFilesRemoved"] - metrics["numFilesAdded"])


def expire(spark: SparkSession, location: Location, table: str, before: date) -> None:
    """Delete the days before `before`."""
    if any(day < before for day in days(location, table)):
        name = _name(location, table)
        _run(spark, " ".join(["DELETE FROM", name, "WHERE day <", _literal(before)]))


def old_statuses(spark: SparkSession, location: Location, before: date) -> DataFrame:
    """Return the statuses that `expire_statuses` deletes."""
    said = archived(spark, location, tables.STATUSES, schemas.STATUSES)
    return expired_statuses(said, before)


def expire_statuses(spark: SparkSession, location: Location, before: date) -> None:
    """Delete of the days before `before` the statuses that nobody needs.

    Delta takes only those days for read, so that what an archive run appends is no conflict.
    """
    if not any(day < before for day in days(location, tables.STATUSES)):
        return
    old_statuses(spark, location, before).select(*_PLACE).createOrReplaceTempView(_EXPIRED)
    same = " AND ".join(f"t.{column} = s.{column}" for column in _PLACE)
    name = _name(location, tables.STATUSES)
    _run(
        spark,
        f"MERGE INTO {name} t USING {_EXPIRED} s "
        f"ON t.day < {_literal(before)} AND {same} WHEN MATCHED THEN DELETE",
    )
    spark.catalog.dropTempView(_EXPIRED)


def vacuum(spark: SparkSession, location: Location, table: str) -> None:
    """Delete the files that no version of the last `VACUUM_HOURS` names."""
    stored = opened(location, table)
    if stored is not None and stored.vacuum(VACUUM_HOURS, dry_run=True, full=True):
        _run(spark, f"VACUUM {_name(location, table)} RETAIN {VACUUM_HOURS} HOURS")


def is_conflict(error: Exception) -> bool:
    """Tell whether another writer got in between, so that the same may succeed now."""
    return isinstance(error, PySparkException) and any(word in str(error) for word in _CONFLICTS)


@stamina.retry(on=is_conflict, attempts=_TRIES, wait_initial=0.5, wait_max=20.0, timeout=None)
def _run(spark: SparkSession, statement: str) -> Row:
    found = spark.sql(statement).first()
    return found if found is not None else Row()


def _name(location: Location, table: str) -> str:
    return f"delta.`{location.spark_path(table).replace('`', '``')}`"


def _literal(day: date) -> str:
    return f"DATE '{day.isoformat()}'"
