"""Bronze to silver: each record decoded once, into the table of its kind or into quarantine."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter

from packhorse.wire.topics import Topics
from packhorse_services.pipeline.archive import places as at
from packhorse_services.pipeline.archive.bronze import (
    Reached,
    begin_anew,
    folder_of,
    progress,
    unheeded,
)
from packhorse_services.pipeline.archive.places import Places
from packhorse_services.pipeline.archive.silver_files import BronzeFile, Decoder, tables_of
from packhorse_services.pipeline.engine.session import cores
from packhorse_services.pipeline.errors import TablesUnusable
from packhorse_services.pipeline.storage import arrow_files, tables
from packhorse_services.pipeline.storage.delta import (
    SILVER,
    BatchNumber,
    append,
    load,
    newest_turn,
)
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.parquet import File, written_by_share

QUERY = "silver"

_FILES_A_BATCH = "200"
_BYTES_A_BATCH = "2g"
_BYTES_A_TASK = 16 * 1024 * 1024
"""A task makes files, so little is decoded by few of them."""


@dataclass(frozen=True, slots=True)
class SilverPlan:
    """Under which generation the query goes on, and which records silver may have already."""

    taken: BatchNumber
    """The last turn that a table of silver has: some may have to be done again."""
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
        taken = last
    else:
        taken = begin_anew(spark, location, QUERY, SILVER, last)
    return SilverPlan(taken, _held(spark, location, topics) if taken.generation else {})


def _held(spark: SparkSession, location: Location, topics: Topics) -> Places:
    """Return the places behind what silver has of each partition."""
    found: list[Places] = []
    topic_of = {name: topic for topic, names in tables_of(topics).items() for name in names}
    for table in SILVER:
        topic = f.col("topic") if table == tables.QUARANTINE else f.lit(topic_of[table])
        rows = (
            load(spark, location, table)
            .groupBy(topic.alias("topic"), "partition")
            .agg(f.max("offset").alias("last"))
            .collect()
        )
        found += [{row["topic"]: {row["partition"]: row["last"] + 1}} for row in rows]
    return at.furthest(*found)


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

    Its stream tells the files; what is in them is read by the tasks that decode it. Commits of
    bronze that rewrite or delete are passed over: compaction and expiry.
    """
    decoder = Decoder(location, topics, blobs_url, found.repeated)

    def write(batch: DataFrame, number: int) -> None:
        files = _decode(batch, decoder)
        turn = BatchNumber(QUERY, found.taken.generation, number)
        _append(files, location, turn, found.taken, reached)

    return (
        spark.readStream.format("delta")
        .option("skipChangeCommits", "true")
        .option("maxFilesPerTrigger", _FILES_A_BATCH)
        .option("maxBytesPerTrigger", _BYTES_A_BATCH)
        .load(location.spark_path(tables.BRONZE))
        .select(f.input_file_name().alias("file"), "topic", "day")
        .writeStream.queryName(QUERY)
        .option("checkpointLocation", folder_of(spark, location, found.taken).path)
        .foreachBatch(write)
    )


def _decode(batch: DataFrame, decoder: Decoder) -> list[File]:
    """Write the files of silver for those of bronze that a batch names; it names whole files."""
    spark = batch.sparkSession
    sources = _sources(batch, decoder.location)
    size = sum(size for _, size in sources)
    tasks = min(cores(spark), len(sources), 1 + size // _BYTES_A_TASK)
    shares = shared(sources, tasks)

    return written_by_share(spark, decoder.location, shares, decoder.run)


def _sources(batch: DataFrame, location: Location) -> list[tuple[BronzeFile, int]]:
    """Return the files that a batch names, and how large they are; the largest come first.

    Raises `TablesUnusable` when one of them is gone.
    """
    named = sorted(batch.coalesce(1).distinct().collect())
    paths = [arrow_files.path_of(one["file"]) for one in named]
    infos = arrow_files.filesystem(location).get_file_info(paths)
    if gone := [info.path for info in infos if not info.is_file]:
        raise TablesUnusable(
            f"{gone[0]} is gone, and was still to be decoded; restore it, or run the archive with "
            "--new-checkpoint if somebody has vacuumed it"
        )
    found = [
        (BronzeFile(path, one["topic"], one["day"]), info.size)
        for path, one, info in zip(paths, named, infos, strict=True)
    ]
    return sorted(found, key=lambda each: each[1], reverse=True)


def shared(sources: Sequence[tuple[BronzeFile, int]], shares: int) -> list[list[BronzeFile]]:
    """Share sources, the largest first, by their sizes: each goes where least is yet."""
    found: list[list[BronzeFile]] = [[] for _ in range(shares)]
    sizes = [0] * shares
    for source, size in sources:
        least = sizes.index(min(sizes))
        found[least].append(source)
        sizes[least] += size
    return found


def _append(
    files: Sequence[File],
    location: Location,
    turn: BatchNumber,
    taken: BatchNumber,
    reached: Reached,
) -> None:
    """Add the files to their tables; a batch without any is noted in one of them."""
    if not files:  # a commit of bronze that added nothing
        append(location, tables.QUARANTINE, turn, taken=taken)
    for table in SILVER:
        if added := [file.action for file in files if file.table == table]:
            reached(f"before {table}")
            append(location, table, turn, added, taken=taken)
            reached(f"after {table}")
    reached(f"after {QUERY}")
