"""Bronze to silver: each record decoded once, into the table of its kind or into quarantine."""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter

from packhorse.wire.topics import Topics
from packhorse_services.pipeline import tables
from packhorse_services.pipeline.archive import places as at
from packhorse_services.pipeline.archive.bronze import Reached, folder_of, progress, unheeded
from packhorse_services.pipeline.archive.delta import (
    SILVER,
    Turn,
    append,
    begin,
    load,
    newest_turn,
    settle,
)
from packhorse_services.pipeline.archive.places import Places
from packhorse_services.pipeline.archive.silver_frame import belongs, decode, rows_of
from packhorse_services.pipeline.location import Location

QUERY = "silver"

_FILES_A_BATCH = "200"
_BYTES_A_BATCH = "512m"


@dataclass(frozen=True, slots=True)
class SilverPlan:
    """Under which generation the query goes on, and which records silver may have already."""

    generation: int
    repeated: Places
    """Below these, an earlier checkpoint may have written; each table is asked."""


def plan(
    spark: SparkSession, location: Location, topics: Topics, *, new_checkpoint: bool = False
) -> SilverPlan:
    """Hold checkpoint and silver together, and begin a new checkpoint where needed.

    Raises `CheckpointCorrupt`.
    """
    last = newest_turn(location, SILVER, QUERY)
    if (
        last is not None
        and not new_checkpoint
        and progress(spark, location, last, SILVER) is not None
    ):
        generation = last.generation
    else:
        generation = _begin(spark, location, last)
    return SilverPlan(generation, _held(spark, location, topics) if generation else {})


def _begin(spark: SparkSession, location: Location, last: Turn | None) -> int:
    fresh = Turn(QUERY, 0 if last is None else last.generation + 1)
    folder_of(spark, location, fresh).remove()
    begin(location, SILVER, fresh)
    if last is not None:
        folder_of(spark, location, last).remove()
    return fresh.generation


def _held(spark: SparkSession, location: Location, topics: Topics) -> Places:
    """Return the places behind what silver has of each partition."""
    found: list[Places] = []
    for table in SILVER:
        topic = f.col("topic") if table == tables.QUARANTINE else f.lit(_topic(table, topics))
        rows = (
            load(spark, location, table)
            .groupBy(topic.alias("topic"), "partition")
            .agg(f.max("offset").alias("last"))
            .collect()
        )
        found += [{row["topic"]: {row["partition"]: row["last"] + 1}} for row in rows]
    return at.furthest(*found)


def _topic(table: str, topics: Topics) -> str:
    return {
        tables.PACKAGES: topics.package,
        tables.STATUSES: topics.status,
        tables.COMMAND_STATUSES: topics.status,
        tables.ANNOUNCEMENTS: topics.discovery,
        tables.COMMANDS: topics.command,
        tables.EVENTS: topics.event,
    }[table]


def query(
    spark: SparkSession,
    location: Location,
    topics: Topics,
    blobs_url: str,
    found: SilverPlan,
    *,
    reached: Reached = unheeded,
) -> DataStreamWriter:
    """Return the query, ready to be given a trigger and started.

    Commits of bronze that rewrite or delete are passed over: compaction and expiry.
    """
    bodies_url = location.blobs_url(tables.BODIES)

    def write(batch: DataFrame, number: int) -> None:
        rows = decode(batch, topics, blobs_url, bodies_url).persist()
        try:
            _write(rows, location, Turn(QUERY, found.generation, number), found.repeated, reached)
        finally:
            rows.unpersist()

    return (
        spark.readStream.format("delta")
        .option("skipChangeCommits", "true")
        .option("maxFilesPerTrigger", _FILES_A_BATCH)
        .option("maxBytesPerTrigger", _BYTES_A_BATCH)
        .load(location.spark_path(tables.BRONZE))
        .writeStream.queryName(QUERY)
        .option(
            "checkpointLocation", folder_of(spark, location, Turn(QUERY, found.generation)).path
        )
        .foreachBatch(write)
    )


def _write(
    rows: DataFrame, location: Location, turn: Turn, repeated: Places, reached: Reached
) -> None:
    counts = _counted(rows, repeated)
    if not any(counts[table] for table in SILVER):  # a commit of bronze that added nothing
        settle(location, tables.QUARANTINE, turn)
    for table in SILVER:
        if counts[table]:
            fresh = rows_of(table, rows)
            if counts["repeated"]:
                fresh = _unknown(fresh, load(rows.sparkSession, location, table), counts, table)
            reached(f"before {table}")
            append(fresh, location, table, turn)
            reached(f"after {table}")
            settle(location, table, turn)


def _counted(rows: DataFrame, repeated: Places) -> Row:
    """Count what a batch has for each table; this is where it is decoded."""
    (found,) = rows.agg(
        *(f.count_if(belongs(table)).alias(table) for table in SILVER),
        f.count_if(_below(repeated)).alias("repeated"),
        f.min("day").alias("first_day"),
        f.max("day").alias("last_day"),
    ).collect()
    return found


def _below(repeated: Places) -> Column:
    """Return whether an earlier checkpoint may have written the record already."""
    below = f.lit(False)
    for topic, partitions in repeated.items():
        for number, offset in partitions.items():
            here = (f.col("topic") == topic) & (f.col("partition") == number)
            below = below | (here & (f.col("offset") < offset))
    return below


def _unknown(fresh: DataFrame, known: DataFrame, batch: Row, table: str) -> DataFrame:
    """Return the rows that the table does not have."""
    key = (
        ["partition", "offset"] if table != tables.QUARANTINE else ["topic", "partition", "offset"]
    )
    days = f.col("day").between(batch["first_day"], batch["last_day"])
    return fresh.join(known.where(days).select(*key), key, "left_anti").select(*fresh.columns)
