"""A mark's report in Delta tables below `marks/<mark id>`; Spark reads, compares and removes."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from packhorse_services.pipeline.engine.databases import MOST_CONNECTIONS
from packhorse_services.pipeline.engine.spark_errors import translated
from packhorse_services.pipeline.pieces import scattered, tasks
from packhorse_services.pipeline.storage import delta, queries, tables
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.parquet import as_they_are, written
from packhorse_services.pipeline.storage.table_files import files_of, taken_out
from packhorse_services.pipeline.sweep import frames
from packhorse_services.pipeline.sweep.frames import BLOBS, FOUND, FOUND_IN, HOLDER, REMOVALS
from packhorse_services.pipeline.sweep.report import (
    SUMMARY,
    BlobTotal,
    List,
    MarkSummary,
    Remove,
    Totals,
)
from packhorse_services.pipeline.sweep.work import BlobScan, Scan

_COLUMNS = {"blobs": BLOBS, "candidates": BLOBS, "doomed": BLOBS, "removals": REMOVALS}
_SUMMARY = pa.schema(
    [("state", pa.string()), ("summary", pa.string()), ("at", pa.timestamp("us", "UTC"))]
)
_BATCH_BLOBS = 100_000
_MAX_BATCHES = 64
_EXAMPLES = 20
_STAYS = ("removals", "summary")
"""What of a mark is kept for good."""
_SWEPT_WITHIN_MS = 24 * 3600 * 1000
_REMEMBERED = "remembered-1"
"""What blobs refer to as this build reads them; one that finds more of it gives it another name."""


def last_summary(location: Location, mark_id: str) -> MarkSummary | None:
    """Return what a mark's report says last, None where there is none; needs no session.

    Raises what `translated` raises.
    """
    table = f"{tables.MARKS}/{mark_id}/summary"
    with translated("sweep"):
        held = delta.opened(location, table)
        if held is None:
            return None
        newest = f'SELECT summary FROM {queries.RELATION} ORDER BY "at" DESC LIMIT 1'  # noqa: S608
        found = list(queries.rows(held, newest))
    return SUMMARY.validate_json(found[0]["summary"]) if found else None


class SparkReport:
    """The `MarkReport` of one mark.

    What a round finds is in folders of this run's own: another sweep of the mark may be at work.
    """

    def __init__(self, spark: SparkSession, location: Location, mark_id: str) -> None:
        self._spark, self._location, self._mark_id = spark, location, mark_id
        self._run = secrets.token_hex(8)

    def state(self) -> MarkSummary | None:
        """Read the last summary."""
        return last_summary(self._location, self._mark_id)

    def note(self, summary: MarkSummary) -> None:
        """Append a summary."""
        row = (summary.state.value, SUMMARY.dump_json(summary).decode(), datetime.now(UTC))
        named = dict(zip(_SUMMARY.names, ([value] for value in row), strict=True))
        with translated("mark"):
            write_deltalake(
                self._location.delta_uri(self._name("summary")),
                pa.table(named, schema=_SUMMARY),
                mode="append",
                storage_options=self._location.delta_options(),
            )

    def list_blobs(self, listing: List, pieces: Sequence[Sequence[str]]) -> Totals:
        """List the groups of shards on the executors."""
        with translated("mark"):
            self._write(self._listed(listing, pieces), "blobs")
            return _totals(frames.totals(self._table("blobs")))

    @contextmanager
    def round(self, round_name: str) -> Iterator[None]:
        """Delete at the end what only the round needs, which is much."""
        try:
            yield
        finally:
            with suppress(Exception):  # the error of the block is the one to report
                self._forget(self._round(round_name))

    def read(self, round_name: str, name: str, scan: Scan, pieces: Sequence[Any]) -> None:
        """Append what one source refers to."""

        def rows(piece: Any) -> Iterator[tuple[object, ...]]:
            for found in scan(piece):
                yield name, found.kind.value, found.key

        with translated(round_name):
            most = min(self._tasks, MOST_CONNECTIONS)
            found = scattered(self._spark, pieces, frames.making(rows, FOUND), FOUND, most)
            found.write.mode("append").parquet(self._path(self._references(round_name)))

    def read_blobs(self, round_name: str, name: str, scan: BlobScan, pieces: Sequence[Any]) -> None:
        """Append what blobs refer to: those that are new are read, by all tasks together."""
        with translated(round_name):
            # In files, for it is read twice: what is new is not read before, and the rest was.
            place = f"{self._round(round_name)}/{name}"
            blobs = self._listed(scan.listed, pieces)
            blobs.write.mode("overwrite").parquet(self._path(place))
            listed = self._files(self._path(place), BLOBS).toDF(*HOLDER)
            remembered = self._remembered()
            new = frames.to_read(listed, remembered).repartition(self._tasks)
            found = new.mapInArrow(frames.reading(name, scan), FOUND_IN)
            found = found.unionByName(frames.read_before(listed, remembered))
            found.write.mode("append").parquet(self._path(self._references(round_name)))

    def remember(self, round_name: str, before_ms: int) -> None:
        """Write what was read beside the report, and try to delete the rest of older marks.

        All of a blob is in one file, so whoever reads while files are deleted misses whole blobs.
        """
        with translated(round_name):
            known = frames.to_remember(self._found(round_name), before_ms)
            known = known.repartition(self._tasks, *HOLDER)
            known.write.mode("overwrite").parquet(self._path(_REMEMBERED))
            *_, first_kept = self._remembering()
            old = f"mark-{before_ms - _SWEPT_WITHIN_MS}"
            for mark_id in self._marks():
                if mark_id < first_kept:
                    with suppress(Py4JError):  # also where another mark does the same
                        self._tidy(mark_id, old=mark_id < old)

    def _tidy(self, mark_id: str, *, old: bool) -> None:
        """Delete what a mark has remembered, and of an old one all but what stays."""
        path, files = self._hadoop("", mark_id)
        # Sorted, rounds go last: a run that may still read one has no list of blobs then, and
        # fails, where half a round would say that nobody refers to the rest.
        for name in sorted(str(one.getPath().getName()) for one in files.listStatus(path)):
            if name == _REMEMBERED or (old and name not in _STAYS):
                self._forget(name, mark_id)

    def body_not_read(self, round_name: str) -> str | None:
        """Compare what the log has with what was read."""
        with translated(round_name):
            row = frames.never_read(self._found(round_name)).first()
        return None if row is None else str(row["key"])

    def unreadable(self, round_name: str) -> tuple[int, tuple[str, ...]]:
        """Count what is no package; few keys come to the driver."""
        with translated(round_name):
            keys = frames.unreadable(self._found(round_name))
            some = tuple(row["key"] for row in keys.orderBy("key").limit(_EXAMPLES).collect())
            return (keys.count() if len(some) == _EXAMPLES else len(some)), some

    def choose_candidates(self, round_name: str, before_ms: int) -> Totals:
        """Write the candidates' table."""
        with translated(round_name):
            found = self._found(round_name)
            self._write(frames.unused(self._table("blobs"), found, before_ms), "candidates")
            return _totals(frames.totals(self._table("candidates")))

    def choose_doomed(self, round_name: str) -> Totals:
        """Write the table of what goes now."""
        with translated(round_name):
            found = self._found(round_name)
            going = frames.doomed(self._table("candidates"), found, self._removals())
            self._write(going, "doomed")
            return _totals(frames.totals(self._table("doomed")))

    def remove_doomed(self, remove: Remove, check: Callable[[], None]) -> Totals:
        """Remove batch by batch; a batch that was cut short is chosen and removed again."""
        with translated("sweep"):
            going = self._table("doomed")
            count = min(_MAX_BATCHES, -(-going.count() // _BATCH_BLOBS))
        for number in range(count):
            check()
            with translated("sweep"):
                batch = going.where(f.pmod(f.xxhash64("key"), f.lit(count)) == number)
                batch = batch.select("key", "length", "modified_ms")
                done = batch.repartition(self._tasks).mapInArrow(frames.removing(remove), REMOVALS)
                self._write(done, "removals", keep=True)
        with translated("sweep"):
            return _totals(frames.totals(self._removals().where("removed")))

    def _removals(self) -> DataFrame:
        delta.prepare(self._location, {self._name("removals"): REMOVALS})
        # A sweep that was killed may have written one key down twice.
        return (
            self._table("removals")
            .groupBy("key")
            .agg(f.max("length").alias("length"), f.max("removed").alias("removed"))
        )

    def _listed(self, listing: List, pieces: Sequence[Any]) -> DataFrame:
        def rows(piece: Any) -> Iterator[tuple[object, ...]]:
            for blob in listing(piece):
                yield blob.key, blob.length, blob.modified_ms

        return scattered(self._spark, pieces, frames.making(rows, BLOBS), BLOBS)

    @property
    def _tasks(self) -> int:
        return tasks(self._spark)

    def _remembered(self) -> DataFrame:
        """Return what the newest mark has remembered."""
        marks = self._remembering()
        if not marks:
            return self._spark.createDataFrame([], FOUND_IN)
        return self._files(self._path(_REMEMBERED, marks[0]), FOUND_IN)

    def _remembering(self) -> list[str]:
        """Return the ids of the last two marks that have remembered anything, the newest first."""
        _, files = self._hadoop("")
        said = f"{_REMEMBERED}/_SUCCESS"
        paths = ((one, self._hadoop(said, one)[0]) for one in reversed(self._marks()))
        return list(islice((one for one, path in paths if files.exists(path)), 2))

    def _marks(self) -> list[str]:
        """Return the ids of all marks, the newest last."""
        own, files = self._hadoop("")
        ids = (str(one.getPath().getName()) for one in files.listStatus(own.getParent()))
        return sorted(one for one in ids if one.startswith("mark-"))

    def _references(self, round_name: str) -> str:
        return f"{self._round(round_name)}/references"

    def _round(self, name: str) -> str:
        return f"rounds/{name}-{self._run}"

    def _files(self, path: str, schema: StructType) -> DataFrame:
        """Return the rows of Parquet files; one that is gone or damaged is an error."""
        reader = self._spark.read.schema(schema).option("ignoreMissingFiles", False)
        return reader.option("ignoreCorruptFiles", False).parquet(path)

    def _name(self, table: str, mark_id: str = "") -> str:
        return f"{tables.MARKS}/{mark_id or self._mark_id}/{table}"

    def _path(self, table: str, mark_id: str = "") -> str:
        return self._location.spark_path(self._name(table, mark_id))

    def _table(self, table: str) -> DataFrame:
        name = self._name(table)
        return delta.frame_of(self._spark, self._location, name, delta.stored(self._location, name))

    def _found(self, round_name: str) -> DataFrame:
        return self._files(self._path(self._references(round_name)), FOUND_IN)

    def _write(self, frame: DataFrame, table: str, *, keep: bool = False) -> None:
        """Let a table have these rows, in the place of what it has unless that is to `keep`."""
        name, columns = self._name(table), _COLUMNS[table]
        delta.prepare(self._location, {name: columns})
        added = [one.action for one in written(frame, self._location, as_they_are(name, columns))]
        held = delta.stored(self._location, name)
        gone = [] if keep else taken_out(files_of(held), rows_go=True)
        delta.commit(self._location, name, held, [*gone, *added])

    def _forget(self, table: str, mark_id: str = "") -> None:
        path, files = self._hadoop(table, mark_id)
        files.delete(path, True)

    def _hadoop(self, table: str, mark_id: str = "") -> tuple[Any, Any]:
        """Return a path and its file system, as Spark itself sees them."""
        context: Any = self._spark.sparkContext
        path = context._jvm.org.apache.hadoop.fs.Path(self._path(table, mark_id))
        return path, path.getFileSystem(context._jsc.hadoopConfiguration())


def _totals(frame: DataFrame) -> Totals:
    found = {row["kind"]: BlobTotal(row["count"], row["bytes"]) for row in frame.collect()}
    return Totals(found.get("binaries", BlobTotal()), found.get("packages", BlobTotal()))
