"""Which point of the history is meant: an offset or a time becomes one archived package."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from packhorse_services.pipeline import schemas, tables
from packhorse_services.pipeline.errors import TaskRefused
from packhorse_services.pipeline.history.read import archived, package_records
from packhorse_services.pipeline.location import Location


@dataclass(frozen=True, slots=True)
class Target:
    """The last package that counts, of the agents that count."""

    journal_id: str
    agents: tuple[str, ...]
    offset: int
    package_id: str


def target(
    spark: SparkSession,
    location: Location,
    *,
    agents: Collection[str] = (),
    offset: int | None = None,
    time: datetime | None = None,
) -> Target:
    """Return the newest archived package at or before an offset, or a time of the journal (R28).

    Without either, the newest one. Without `agents`, those of every publisher agent count. Raises
    `TaskRefused` when nothing is archived there, `TablesUnusable` when there is no archive.
    """
    journal_id = newest_journal(spark, location)
    records = package_records(spark, location, journal_id)
    known = _agents(records)
    if unknown := sorted(set(agents) - set(known)):
        raise TaskRefused(
            f"the archive has no package of publisher agent {unknown[0]!r}; it has those of "
            f"{', '.join(known)}"
        )
    chosen = tuple(sorted(agents)) or known
    _require_archived(records, offset, time)
    own = records.where(f.col("publisher_agent").isin(list(chosen)))
    if offset is not None:
        own = own.where(f.col("offset") <= offset)
    if time is not None:
        own = own.where(f.col("time") <= f.lit(time))
    last = own.agg(f.max(f.struct("offset", "package_id")).alias("last")).collect()[0].last
    if last is None:
        raise TaskRefused(
            f"there is no archived package of {', '.join(chosen)} that early; choose a later point"
        )
    return Target(journal_id, chosen, last.offset, last.package_id or "")


def newest_journal(spark: SparkSession, location: Location) -> str:
    """Return the identity of the package topic that was archived last (R24)."""
    bronze = archived(spark, location, tables.BRONZE, schemas.BRONZE)
    packages = bronze.where(f.col("topic").endswith("_package"))
    found = packages.agg(f.max_by("journal_id", "time").alias("journal_id")).collect()[0]
    if found.journal_id is None:
        raise TaskRefused("no package is archived yet; run packhorse-pipeline archive")
    return str(found.journal_id)


def _agents(records: DataFrame) -> tuple[str, ...]:
    rows = records.where(f.col("publisher_agent").isNotNull()).select("publisher_agent").distinct()
    return tuple(sorted(row.publisher_agent for row in rows.collect()))


def _require_archived(records: DataFrame, offset: int | None, time: datetime | None) -> None:
    found = records.agg(
        f.min("offset").alias("first"),
        f.max("offset").alias("last"),
        f.min(f.col("time")).alias("since"),
    ).collect()[0]
    if offset is not None and not found.first <= offset <= found.last:
        raise TaskRefused(
            f"offset {offset} is not archived: the archive holds {found.first} to {found.last}; "
            "run packhorse-pipeline archive for later ones"
        )
    if time is not None and time < found.since.replace(tzinfo=time.tzinfo):
        raise TaskRefused(f"the archive begins at {found.since:%Y-%m-%d %H:%M:%S} UTC; not before")
