"""The archive's one query: each batch of the journal to bronze and, decoded, to silver.

Spark reads, by its own source for Kafka and by `JournalSource` for the SQL journal, and keeps the
checkpoint. The tasks that have a batch's rows write the files of all tables; each table takes them
in one commit with the batch's transaction, bronze first.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from packhorse.messaging.api import Journal, JournalUnavailable
from packhorse.wire.topics import Topics
from packhorse_services.pipeline.archive import places as at
from packhorse_services.pipeline.archive.checkpoint import Checkpoint
from packhorse_services.pipeline.archive.journal_source import (
    FEW_RECORDS,
    IDENTITIES,
    MAX_OFFSETS,
    MAX_TASKS,
    NAME,
    STARTING,
    URL,
    JournalSource,
    opened,
    require_same,
    tasks,
)
from packhorse_services.pipeline.archive.kafka_source import kafka_stream, self_contained
from packhorse_services.pipeline.archive.places import OffsetRange, Places
from packhorse_services.pipeline.archive.progress import QUERY, ArchiveProgress
from packhorse_services.pipeline.archive.reading import from_kafka, read_batches
from packhorse_services.pipeline.archive.silver import Decoder
from packhorse_services.pipeline.pieces import cores
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.compaction import OpenDays
from packhorse_services.pipeline.storage.delta import LAST, SILVER, BatchMark, append
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.parquet import File, Files, written, written_by_share

Reached = Callable[[str], None]
"""Told at each point where a kill may leave things half done: before and after every commit."""


def unheeded(_point: str) -> None:
    """Let a commit point pass."""


@dataclass(frozen=True, slots=True)
class ArchivedJournal:
    """The journal that is archived, and how much of it a batch takes at most."""

    url: str
    topics: Topics
    max_offsets: int = 250_000

    @property
    def names(self) -> tuple[str, ...]:
        """The five topics."""
        one = self.topics
        return (one.package, one.status, one.discovery, one.command, one.event)

    @property
    def is_kafka(self) -> bool:
        """Whether Spark has a source of its own for it."""
        return self.url.startswith("kafka://")


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """Where the query goes on, and which journal it reads."""

    checkpoint: Checkpoint
    starting: Places
    """Where a checkpoint that is begun anew starts."""
    identities: Mapping[str, str]
    waiting: int
    """Offsets between there and the journal's end."""
    open_files: int | None = None
    """Files of a day in a table from which on they are merged on the way; None: never."""

    def extent(self, batch: int) -> tuple[Places, Places]:
        """Return where a planned batch begins and ends. Raises `CheckpointCorrupt`."""
        start = self.checkpoint.end_of(batch - 1) if batch else self.starting
        return start, self.checkpoint.end_of(batch)


def stream(spark: SparkSession, origin: ArchivedJournal, found: QueryPlan) -> DataFrame:
    """Return the journal's records as a stream."""
    starting, most = at.as_json(found.starting), str(origin.max_offsets)
    if origin.is_kafka:
        options = {"startingOffsets": starting, "maxOffsetsPerTrigger": most}
        options["minPartitions"] = str(cores(spark))
        return kafka_stream(spark, origin.url, found.identities, options)
    spark.dataSource.register(JournalSource)
    options = {URL: origin.url, STARTING: starting, IDENTITIES: json.dumps(found.identities)}
    options |= {MAX_OFFSETS: most, MAX_TASKS: str(cores(spark))}
    return spark.readStream.format(NAME).options(**options).load()


@dataclass(frozen=True, slots=True)
class Writing:
    """Makes the files of a batch, in the tasks that have its records."""

    url: str
    identities: Mapping[str, str]
    decoder: Decoder

    def of_kafka(self, files: Files, batches: Iterator[pa.RecordBatch]) -> None:
        """Write what Spark's source for Kafka has read."""
        self.write(files, (one for rows in batches for one in from_kafka(rows, self.identities)))

    def of_ranges(self, files: Files, share: Sequence[OffsetRange]) -> None:
        """Write what the product's own reader reads."""
        with opened(self.url) as journal:
            for wanted in share:
                identity = self.identities[wanted.topic]
                self.write(files, read_batches(journal, wanted, identity))

    def write(self, files: Files, batches: Iterator[pa.RecordBatch]) -> None:
        """Write records in the columns of bronze, as they are and decoded."""
        with self.decoder.copying() as bodies:
            for batch in batches:
                files.add(tables.BRONZE, batch)
                for table, rows in self.decoder.decode(batch, bodies).items():
                    files.add(table, rows)


def query(
    spark: SparkSession,
    origin: ArchivedJournal,
    found: QueryPlan,
    decoder: Decoder,
    reached: Reached,
    progress: ArchiveProgress,
) -> DataStreamWriter:
    """Return the query, ready to be given a trigger and started."""
    writing = Writing(self_contained(origin.url), found.identities, decoder)
    checkpoint = found.checkpoint
    most = found.open_files
    days = None if most is None else OpenDays(spark, checkpoint.location, most)

    def write(batch: DataFrame, number: int) -> None:
        began = time.monotonic()
        extent = found.extent(number)
        files = _files(batch, origin, writing, extent, checkpoint)
        with opened(origin.url) as journal:
            require_same(journal, found.identities)
            commit(checkpoint.location, checkpoint.mark(number), files, reached)
            lag = _lag(journal, origin.names, extent[1])
        if days is not None:
            days.added(files)
        records = sum(file.rows for file in files if file.table == tables.BRONZE)
        progress.passed(number, records, seconds=time.monotonic() - began, lag=lag)

    writer = stream(spark, origin, found).writeStream.queryName(QUERY)
    return writer.option("checkpointLocation", checkpoint.path).foreachBatch(write)


def _lag(journal: Journal, names: Iterable[str], end: Places) -> int | None:
    """Return how many offsets the journal has behind `end`; None when it can't say so now."""
    try:
        return at.distance(end, at.ends(at.extent_of(journal, names)))
    except JournalUnavailable:  # the batch is stored
        return None


_OVERFLOW = "long overflow"
"""What Spark's source for Kafka says of a time whose microseconds have no 64 bits."""


def _files(
    batch: DataFrame,
    origin: ArchivedJournal,
    writing: Writing,
    extent: tuple[Places, Places],
    checkpoint: Checkpoint,
) -> list[File]:
    """Let tasks write a batch's records; no table has the files yet.

    A record whose time Spark can't tell stops nobody: its batch is read by the product's reader.
    """
    spark, location, records = batch.sparkSession, checkpoint.location, at.distance(*extent)
    count = tasks(records, cores(spark))
    if not origin.is_kafka:
        return written(batch, location, writing.write)
    try:
        # Ranges of partitions that are not cut: where records are few, several go to a task.
        rows = batch.coalesce(count) if records <= FEW_RECORDS else batch
        return written(rows, location, writing.of_kafka)
    except (PySparkException, Py4JError) as error:
        if _OVERFLOW not in str(error):
            raise
    return written_by_share(spark, location, at.shares(*extent, count), writing.of_ranges)


def commit(location: Location, mark: BatchMark, files: Sequence[File], reached: Reached) -> None:
    """Let each table have its files of a batch; the first and the last one have every batch."""
    for table in (tables.BRONZE, *SILVER):
        added = [file.action for file in files if file.table == table]
        if added or table in (tables.BRONZE, LAST):
            reached(f"before {table}")
            append(location, table, mark, added)
            reached(f"after {table}")
