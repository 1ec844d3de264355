"""What of the silver tables is new since the measures were made last."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from packhorse_services.pipeline.measures.announced import SUBSCRIPTION_KEY
from packhorse_services.pipeline.measures.outcomes import decided, facts, sent
from packhorse_services.pipeline.measures.times import HOUR_MS, is_from, midnight
from packhorse_services.pipeline.storage import columns, schemas, tables
from packhorse_services.pipeline.storage.delta import load, opened, stored
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.table_files import whole_from

SOURCES = {
    tables.PACKAGES: schemas.PACKAGES,
    tables.STATUSES: schemas.STATUSES,
    tables.ANNOUNCEMENTS: schemas.ANNOUNCEMENTS,
}
"""The tables that measures are made of."""

REMEMBERED_MS = 6 * 24 * 3_600_000
"""So long the new rows of a table are known; upkeep keeps their files longer."""


@dataclass(frozen=True, slots=True)
class VersionOfTable:
    """One version of a table; -1 of one that is not there."""

    table: str
    table_id: str = ""
    version: int = -1
    whole_from: date | None = None
    """Days before it have lost rows to the upkeep."""


class Sources:
    """The silver tables as they were when a run began: what comes later is left for the next."""

    def __init__(self, spark: SparkSession, location: Location) -> None:
        self._spark, self._location = spark, location
        self.versions = {name: current(location, name) for name in SOURCES}
        self._all: dict[str, DataFrame] = {}

    def all(self, name: str) -> DataFrame:
        """Return all rows of a table. Raises `SchemaChanged`."""
        if name not in self._all:  # Delta looks through the log each time that it is asked
            self._all[name] = self._rows(name)
        return self._all[name]

    def _rows(self, name: str) -> DataFrame:
        there = self.versions[name]
        if there.version < 0:
            return self._spark.createDataFrame([], SOURCES[name])
        held = stored(self._location, name, there.version)
        return load(self._spark, self._location, name, held)

    def earliest(self, name: str) -> int | None:
        """Return the time of a table's first row, in milliseconds; None: it has no row.

        Its log says so. Of a file without statistics it knows the day, which is not later.
        """
        version = self.versions[name].version
        if version < 0:
            return None
        held = stored(self._location, name, version)
        files = pa.table(held.get_add_actions(flatten=True)).to_pylist()
        times = [one.get("min.time") or midnight(one["partition.day"]) for one in files]
        return min((int(time.timestamp() * 1000) for time in times), default=None)

    def has_new(self, name: str, after: int) -> bool:
        """Return whether anything has become of a table after a version."""
        return self.versions[name].version > after

    def new(self, name: str, after: int) -> DataFrame:
        """Return the rows that came after a version; rewriting and deleting brings none.

        Ask only where `has_new` says that there is anything.
        """
        reader = (
            self._spark.read.format("delta")
            .option("readChangeFeed", "true")
            .option("startingVersion", after + 1)
            .option("endingVersion", self.versions[name].version)
        )
        rows = reader.load(self._location.spark_path(name)).where("_change_type = 'insert'")
        return columns.require(rows, SOURCES[name], name)

    def measured(self, noted: Iterable[Mapping[str, Any]]) -> dict[str, int] | None:
        """Return the versions of the last run; None when it is not known what is new since.

        `noted` are the rows of `schemas.MEASURED` that it left.
        """
        earliest = time.time() * 1000 - REMEMBERED_MS
        known = {row["table"]: row for row in noted if row["measured_ms"] >= earliest}
        for name, there in self.versions.items():
            if name not in known or not _follows(there, known[name]):
                return None
        return {name: known[name]["version"] for name in SOURCES}

    def to_note(self) -> list[dict[str, Any]]:
        """Return the rows of `schemas.MEASURED` that stand for these versions."""
        now_ms = int(time.time() * 1000)
        return [
            {
                "table": each.table,
                "table_id": each.table_id,
                "version": each.version,
                "measured_ms": now_ms,
            }
            for each in self.versions.values()
        ]


def _follows(there: VersionOfTable, measured: Mapping[str, Any]) -> bool:
    """Return whether it is known which rows came between two versions of a table."""
    before: int = measured["version"]
    return before < 0 or (there.table_id == measured["table_id"] and there.version >= before)


def current(location: Location, name: str) -> VersionOfTable:
    """Return the newest version of a table. Raises as `opened` does."""
    table = opened(location, name)
    if table is None:
        return VersionOfTable(name)
    return VersionOfTable(name, str(table.metadata().id), table.version(), whole_from(table))


def earliest(new: DataFrame) -> int | None:
    """Return the journal's time of the earliest of rows, in milliseconds."""
    return _least(new.select(f.unix_millis("time")))


def earliest_decided(
    new: DataFrame, statuses: DataFrame, packages: DataFrame, subscriptions: DataFrame
) -> int | None:
    """Return the earliest time that new statuses change, in milliseconds.

    Of every decision on their packages, for one that comes late may be the first one; and the
    hour in which the subscription came up to the package by its announcements, where it may be
    counted as imported. `subscriptions` has the columns of `schemas.SUBSCRIPTIONS`.
    """
    keys = sent(new).select(*SUBSCRIPTION_KEY, "offset").distinct()
    again = sent(statuses).join(keys, [*SUBSCRIPTION_KEY, "offset"], "left_semi")
    happened = decided(again, facts(packages)).select("outcome_ms")
    least = keys.groupBy(*SUBSCRIPTION_KEY).agg(f.min("offset").alias("least"))
    come_up = subscriptions.join(least, [*SUBSCRIPTION_KEY]).where("reached >= least")
    return _least(happened.union(come_up.select(f.unix_millis("hour"))))


def _least(times: DataFrame) -> int | None:
    [[found]] = times.agg(f.min(times.columns[0])).collect()
    return None if found is None else int(found)


def made_from(sources: Sources, subscriptions: DataFrame, since_ms: int) -> int:
    """Return the first hour from `since_ms` on that may be made anew, in milliseconds.

    What became of packages of expired days can't be counted again: those days' hours stay as they
    are, and later ones up to the last in which such a package was reported. The last hour that was
    made may always be made again, and what follows it has to be.
    """
    days = [each.whole_from for each in sources.versions.values() if each.whole_from is not None]
    if not days:
        return since_ms
    last = subscriptions.agg(f.max(f.unix_millis("hour"))).collect()[0][0]
    if last is None or since_ms >= last:
        return since_ms
    whole = round(midnight(max(days)).timestamp() * 1000)
    first = _first_kept(sources.all(tables.PACKAGES), subscriptions)
    return min(_behind_expired_packages(sources, first, max(since_ms, whole)), int(last))


def _first_kept(packages: DataFrame, subscriptions: DataFrame) -> DataFrame:
    """Return for each journal the offset below which its packages have expired.

    Of a journal none of whose packages is left that is what no subscriber has come up to.
    """
    kept = packages.groupBy("journal_id").agg(f.min("offset").alias("first"))
    reached = subscriptions.groupBy("journal_id").agg((f.max("reached") + 1).alias("first"))
    return kept.unionByName(reached.join(kept, "journal_id", "left_anti"))


def _behind_expired_packages(sources: Sources, first: DataFrame, begin_ms: int) -> int:
    """Return the first hour from `begin_ms` on after which no expired package was reported."""
    first = f.broadcast(first)
    said = sources.all(tables.STATUSES).where(is_from(begin_ms, "time"))
    decided = said.join(first, said["package_journal_id"] == first["journal_id"]).where(
        "package_offset < first"
    )
    announcements = sources.all(tables.ANNOUNCEMENTS).where(is_from(begin_ms, "time"))
    subscriptions = announcements.select("time", f.explode("subscriptions").alias("subscription"))
    behind = subscriptions.join(
        first, f.col("subscription.journal_id") == f.col("journal_id")
    ).where("subscription.offset < first - 1")
    times = decided.select(said["time"]).unionByName(behind.select("time"))
    last = times.agg(f.max(f.unix_millis("time"))).collect()[0][0]
    return begin_ms if last is None else (int(last) // HOUR_MS + 1) * HOUR_MS
