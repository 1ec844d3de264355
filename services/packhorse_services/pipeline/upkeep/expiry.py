"""What goes: days of tables, statuses and bodies that nobody needs, files that no table has."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import date

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from packhorse.blobs.open import open_blobs
from packhorse.bookkeeping.positions import LEFT_OUT
from packhorse.snapshots.snapshot import ContentSnapshot
from packhorse.wire.messages import Status
from packhorse_services.pipeline.history.bases import began, known_agents, serves
from packhorse_services.pipeline.pieces import batches, scattered
from packhorse_services.pipeline.storage import schemas, tables
from packhorse_services.pipeline.storage.delta import load, opened
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.parquet import as_they_are, written
from packhorse_services.pipeline.storage.table_files import (
    files_of,
    replace,
    tried_again,
)

VACUUM_HOURS = 168
"""Files that a table no longer names stay so long: streams and readers may be that far behind."""

_PLACE = ["day", "journal_id", "partition", "offset"]
"""The columns that say where a record was; no two have the same."""


@tried_again
def expire(location: Location, table: str, before: date) -> None:
    """Delete the days before `before`. What is added to them meanwhile stays for the next run."""
    held = opened(location, table)
    if held is None:
        return
    gone = [one for one in files_of(held) if one.day < before]
    if gone:
        replace(location, table, held, gone, expired=before)


@tried_again
def expire_statuses(spark: SparkSession, location: Location, before: date) -> None:
    """Delete of the days before `before` the statuses that nobody needs.

    The others of these days are written anew; what an archive run adds meanwhile stays as it is.
    """
    held = opened(location, tables.STATUSES)
    if held is None or not any(one.day < before for one in files_of(held)):
        return
    said = load(spark, location, tables.STATUSES, held)
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
    replace(location, tables.STATUSES, held, gone, added, expired=before)


def vacuum(location: Location, table: str) -> None:
    """Delete the files that no version of the last `VACUUM_HOURS` names."""
    stored = opened(location, table)
    if stored is not None and stored.vacuum(VACUUM_HOURS, dry_run=True, full=True):
        stored.vacuum(VACUUM_HOURS, dry_run=False, full=True)


Agents = frozenset[str]

_COVERED = "publisher_agent string, journal_id string, covered long"


@dataclass(frozen=True, slots=True)
class Needed:
    """The first day whose packages are needed, and the first of them."""

    day: date
    publisher_agent: str
    offset: int


def covered(
    packages: DataFrame, snapshots: Iterable[ContentSnapshot], sets: Iterable[Agents]
) -> DataFrame:
    """Return up to which offset snapshots hold the content, by agent and journal.

    Of all agents together, and of those of each of `sets`: who follows these alone is served by no
    snapshot of others too. Only what a fold may go on from counts: whole ones, for everybody.
    """
    first: dict[str, dict[str, int]] = {}
    found = packages.groupBy("journal_id", "publisher_agent").agg(f.min("offset").alias("offset"))
    for row in found.collect():  # one for each agent
        first.setdefault(row.journal_id, {})[row.publisher_agent] = row.offset
    there = list(snapshots)
    rows = [
        (agent, journal, offset)
        for journal, agents in first.items()
        for agent, offset in held(journal, agents, there, sets).items()
    ]
    return packages.sparkSession.createDataFrame(rows, _COVERED)


def held(
    journal_id: str,
    first: Mapping[str, int],
    snapshots: Sequence[ContentSnapshot],
    sets: Iterable[Agents],
) -> dict[str, int]:
    """Return up to which offset of a journal the packages of each agent are in snapshots.

    `first` has each agent's first archived package.
    """
    here = [one for one in snapshots if one.journal_id == journal_id]
    begun = began(first, here, journal_id)
    everybody = frozenset(known_agents(first, here, journal_id))
    usable = [one for one in here if not (one.subscriber or one.left_out)]
    found: dict[str, int] = {}
    for agents in {everybody, *(each & everybody for each in sets)}:
        offset = max((one.offset for one in usable if serves(one, agents, begun)), default=-1)
        for agent in agents:
            found[agent] = min(found.get(agent, offset), offset)
    return found


def followed(announcements: DataFrame) -> set[Agents]:
    """Return the sets of publisher agents that subscribers follow, as they announced."""
    subscriptions = f.transform(
        "subscriptions", lambda subscription: subscription["publisher_agent"]
    )
    rows = announcements.select(f.array_sort(subscriptions).alias("agents")).distinct().collect()
    return {frozenset(row.agents) for row in rows if row.agents}


def needed(packages: DataFrame, covered: DataFrame) -> Needed | None:
    """Return the first package that no snapshot holds; None when they hold all there are.

    `packages` has the columns of `schemas.PACKAGES`, `covered` those of the function. Of a journal
    that another one has followed nothing is needed: no position in it is good (R24).
    """
    key = ["publisher_agent", "journal_id"]
    present = packages.agg(f.max_by("journal_id", "time").alias("journal_id"))
    above = (
        packages.select(*key, "day", "offset")
        .join(f.broadcast(present), "journal_id")
        .join(f.broadcast(covered), key, "left")
        .where("offset > coalesce(covered, -1)")
    )
    first = f.min(f.struct("day", "offset", "publisher_agent")).alias("first")
    row = above.agg(first).where("first IS NOT NULL").select("first.*").first()
    return None if row is None else Needed(row["day"], row["publisher_agent"], row["offset"])


def expired_statuses(statuses: DataFrame, before: date) -> DataFrame:
    """Return the rows of `schemas.STATUSES` that may go: old ones that say IMPORTED or LEFT_OUT.

    Old are those of days before `before`.

    What says which packages are absent stays: each status of a package that its subscriber has
    ever not imported though it was for it. Without them nobody knows what its content lacks (R8).
    They are few.
    """
    package = ["subscriber", "publisher_agent", "package_offset", "package_journal_id"]
    complete = f.col("status").isin(Status.IMPORTED.value, LEFT_OUT)
    absent = statuses.where(~complete).select(*package).distinct()
    old = statuses.where(complete & (f.col("day") < f.lit(before)))
    return old.join(absent, package, "left_anti")


_ROWS = 2_000
_SHARDS = [f"{number:02x}" for number in range(256)]
_LISTED = StructType([StructField("key", StringType()), StructField("modified_ms", LongType())])


def listed_bodies(spark: SparkSession, url: str) -> DataFrame:
    """Return key and modified_ms of every body, listed by the workers, shard after shard."""
    shape = to_arrow_schema(_LISTED)

    def run(shards: Iterable[str]) -> Iterator[pa.RecordBatch]:
        with closing(open_blobs(url)) as blobs:
            found = (blob for shard in shards for blob in blobs.list(f"packages/{shard}/"))
            yield from batches(((one.key, one.modified_ms) for one in found), shape, _ROWS)

    return scattered(spark, _SHARDS, run, _LISTED)


def expired_bodies(bodies: DataFrame, packages: DataFrame, before_ms: int) -> DataFrame:
    """Return the bodies that no package refers to, of those stored before `before_ms`.

    A younger one may belong to a package that is being archived.
    """
    kept = packages.where("body_reference IS NOT NULL").select(packages["body_reference"])
    old = bodies.where(bodies["modified_ms"] < before_ms)
    return old.join(kept, old["key"] == kept["body_reference"], "left_anti")


def delete_bodies(bodies: DataFrame, url: str) -> None:
    """Delete the bodies, in the workers; one that is gone is a success."""

    def delete_all(rows: Iterator[Row]) -> None:
        with closing(open_blobs(url)) as blobs:
            for row in rows:
                blobs.delete(row["key"])

    bodies.foreachPartition(delete_all)
