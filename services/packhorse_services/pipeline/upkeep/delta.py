"""What Delta does to a table, tried again when an archive run got in between."""

import logging
from datetime import date

import stamina
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from packhorse_services.pipeline.location import Location

logger = logging.getLogger(__name__)

VACUUM_HOURS = 168
"""Files that a table no longer names stay so long: streams and readers may be that far behind."""

_CONFLICTS = ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "ConcurrentModification")
_TRIES = 6


def compact(spark: SparkSession, location: Location, table: str, before: date) -> int:
    """Put the small files of each day before `before` together; returns how many became fewer."""
    row = _run(spark, f"OPTIMIZE {_name(location, table)} WHERE day < {_literal(before)}")
    metrics = row["metrics"]
    return int(metrics["numFilesRemoved"] - metrics["numFilesAdded"])


def expire(spark: SparkSession, location: Location, table: str, before: date) -> None:
    """Delete the days before `before`."""
    _run(spark, " ".join(["DELETE FROM", _name(location, table), "WHERE day <", _literal(before)]))


def vacuum(spark: SparkSession, location: Location, table: str) -> None:
    """Delete the files that no version of the last `VACUUM_HOURS` names."""
    _run(spark, f"VACUUM {_name(location, table)} RETAIN {VACUUM_HOURS} HOURS")


def rows_before(spark: SparkSession, location: Location, table: str, before: date) -> int:
    """Return how many rows the days before `before` have."""
    rows = spark.read.format("delta").load(location.spark_path(table))
    return rows.where(f"day < {_literal(before)}").count()


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
