"""Journal to bronze: every record once, by topic, partition and offset, through any restarts."""

import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from packhorse.messaging.api import Journal
from packhorse.messaging.open import open_journal
from packhorse.wire.topics import Topics
from packhorse_services.pipeline.archive import places as at
from packhorse_services.pipeline.archive import start
from packhorse_services.pipeline.archive.checkpoint import (
    CheckpointFolder,
    QueryProgress,
    offset_of,
    progress_of,
)
from packhorse_services.pipeline.archive.journal_source import (
    IDENTITIES,
    MAX_OFFSETS,
    NAME,
    STARTING,
    URL,
    JournalSource,
    require_same,
)
from packhorse_services.pipeline.archive.kafka_source import kafka_stream, self_contained
from packhorse_services.pipeline.archive.places import Places
from packhorse_services.pipeline.archive.reading import read_batches
from packhorse_services.pipeline.archive.start import require_same_records
from packhorse_services.pipeline.engine.session import cores
from packhorse_services.pipeline.errors import CheckpointCorrupt, Overtaken
from packhorse_services.pipeline.storage import tables
from packhorse_services.pipeline.storage.delta import (
    BatchNumber,
    append,
    begin,
    newest_turn,
    overtaken,
)
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.parquet import Files, written_by_share

logger = logging.getLogger(__name__)

QUERY = "bronze"

_FEW_TASKS = 2
_RECORDS_A_TASK = 10_000
"""A task costs a tenth of a second and makes a file, so few records are read by few tasks."""

STARVED = "Python worker failed to connect back"
"""What Spark says when the process that plans took more than 10 s to begin; it can't be told to
wait any longer."""

Reached = Callable[[str], None]
"""Told at each point where a kill may leave things half done: before and after every commit."""


Counted = Callable[[int, int], None]
"""Told the number of each batch, and how many records it has archived."""


def unheeded(_point: str) -> None:
    """Let a commit point pass."""


def uncounted(_batch: int, _records: int) -> None:
    """Let a number pass."""


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

    def open(self) -> "closing[Journal]":
        """Return a connection to the journal."""
        return opened(self.url)


def opened(url: str) -> "closing[Journal]":
    """Return a connection to the journal."""
    return closing(open_journal(url, client_name="packhorse-archive"))


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """Where the query goes on: under which generation, and from where if that is a new one."""

    taken: BatchNumber
    """The last turn that bronze has: the next batch is the one after it, or the same again."""
    starting: Places
    identities: Mapping[str, str]
    waiting: int
    """Offsets between there and the journal's end."""


def plan(
    spark: SparkSession,
    location: Location,
    origin: ArchivedJournal,
    *,
    accept_gap: bool = False,
    new_checkpoint: bool = False,
) -> QueryPlan:
    """Hold checkpoint, bronze and journal together, and begin a new checkpoint where needed.

    Raises `HistoryGap`, `CheckpointCorrupt`, `TaskRefused`, and the journal's own errors.
    """
    turn = newest_turn(location, [tables.BRONZE], QUERY)
    reached = None if turn is None or new_checkpoint else _reached(spark, location, turn)
    held = start.held_by_bronze(location)
    with origin.open() as journal:
        identities = start.identities_of(journal, origin.names, held)
        extent = at.extent_of(journal, origin.names)
        expected = at.furthest(held.places, reached or {})
        start.require_not_beyond(extent, expected)
        require_same_records(location, journal, held.newest, extent)
    missing = start.sort_holes(
        at.holes(extent, expected), expected, origin.topics.discovery, accept=accept_gap
    )
    start.record(location, missing, identities)
    if turn is None or reached is None or at.holes(extent, reached):
        turn = begin_anew(spark, location, QUERY, [tables.BRONZE], turn)
        # Only now can nobody else write any more.
        expected = at.furthest(start.held_by_bronze(location).places, reached or {})
    starting = at.starts(extent, expected)
    return QueryPlan(turn, starting, identities, at.distance(starting, at.ends(extent)))


def folder_of(spark: SparkSession, location: Location, turn: BatchNumber) -> CheckpointFolder:
    """Return the checkpoint of a generation."""
    path = location.spark_path(f"{tables.checkpoint(turn.query)}/{turn.generation}")
    return CheckpointFolder(spark, path)


def progress(
    spark: SparkSession, location: Location, turn: BatchNumber, written: Iterable[str]
) -> QueryProgress | None:
    """Return how far a generation has come; `turn` is the last one of the tables `written`.

    Raises `CheckpointCorrupt`, also when it is foreign; `Overtaken` when another run goes on.
    """
    folder = folder_of(spark, location, turn)
    try:
        found = progress_of(folder)
    except CheckpointCorrupt as error:  # perhaps it was removed meanwhile
        raise overtaken(location, written, turn) or error from error
    if found is None or found.batch <= turn.batch:
        return found
    if newest_turn(location, written, turn.query) != turn:
        raise Overtaken(
            f"another run of the archive is at work on the query {turn.query}; wait for it, or "
            "end it first"
        )
    raise folder.corrupt("commits", "it has done more than the tables have")


def _reached(spark: SparkSession, location: Location, turn: BatchNumber) -> Places | None:
    found = progress(spark, location, turn, [tables.BRONZE])
    if found is None:
        return None
    return _as_places(folder_of(spark, location, turn), found.batch, found.offset)


def _end_of(folder: CheckpointFolder, batch: int) -> Places:
    """Return where a batch of the query ends. Raises `CheckpointCorrupt`."""
    return _as_places(folder, batch, offset_of(folder, batch))


def _as_places(folder: CheckpointFolder, batch: int, offset: object) -> Places:
    try:
        return at.from_document(offset)
    except (ValueError, TypeError) as error:
        raise folder.corrupt(f"offsets/{batch}", "it is another query's") from error


def begin_anew(
    spark: SparkSession,
    location: Location,
    query: str,
    names: Collection[str],
    last: BatchNumber | None,
) -> BatchNumber:
    """Begin a query's checkpoint anew, and let go of the last one. Returns its first turn.

    `names` are the tables that the query writes. Raises `Overtaken` when another run begins the
    same one: its folder is left alone.
    """
    fresh = BatchNumber(query, 0 if last is None else last.generation + 1)
    begin(location, names, fresh)
    folder_of(spark, location, fresh).remove()
    if last is not None:
        folder_of(spark, location, last).remove()
    return fresh


def query(
    spark: SparkSession,
    location: Location,
    origin: ArchivedJournal,
    found: QueryPlan,
    *,
    reached: Reached = unheeded,
    counted: Counted = uncounted,
) -> DataStreamWriter:
    """Return the query, ready to be given a trigger and started.

    Spark's source tells the offsets of each batch, and its checkpoint keeps them; its rows are
    left alone. Tasks read the records by the journal's own reader (ADR 0034).
    """
    folder = folder_of(spark, location, found.taken)

    def write(batch: DataFrame, number: int) -> None:
        turn = BatchNumber(QUERY, found.taken.generation, number)
        with origin.open() as journal:
            require_same(journal, found.identities)
        start = _end_of(folder, number - 1) if number else found.starting
        end = _end_of(folder, number)
        shares = at.shares(start, end, _tasks(spark, at.distance(start, end)))
        reading = Reading(self_contained(origin.url), found.identities)
        files = written_by_share(batch.sparkSession, location, shares, reading.write)
        reached("before bronze")
        append(*(location, tables.BRONZE, turn, [file.action for file in files]), taken=found.taken)
        counted(number, sum(file.rows for file in files))
        reached("after bronze")

    return (
        source(spark, origin, found)
        .writeStream.queryName(QUERY)
        .option("checkpointLocation", folder.path)
        .foreachBatch(write)
    )


@dataclass(frozen=True, slots=True)
class Reading:
    """Takes records from the journal to bronze's files, in a task."""

    url: str
    identities: Mapping[str, str]

    def write(self, files: Files, share: Iterable[at.OffsetRange]) -> None:
        """Read ranges, one after the other."""
        with opened(self.url) as journal:
            for wanted in share:
                for batch in read_batches(journal, wanted, self.identities[wanted.topic]):
                    files.add(tables.BRONZE, batch)


def _tasks(spark: SparkSession, records: int) -> int:
    return min(cores(spark), max(_FEW_TASKS, records // _RECORDS_A_TASK))


def source(spark: SparkSession, origin: ArchivedJournal, found: QueryPlan) -> DataFrame:
    """Return the journal as a stream that is asked for its offsets alone."""
    starting = at.as_json(found.starting)
    if origin.url.startswith("kafka://"):
        limit = {"maxOffsetsPerTrigger": str(origin.max_offsets)}
        return kafka_stream(spark, origin.url, found.identities, starting, limit)
    spark.dataSource.register(JournalSource)
    options = {URL: origin.url, STARTING: starting, IDENTITIES: json.dumps(found.identities)}
    options |= {MAX_OFFSETS: str(origin.max_offsets)}
    return spark.readStream.format(NAME).options(**options).load()
