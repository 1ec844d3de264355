"""A mark's report in Delta tables below `marks/<mark id>`; Spark reads, compares and removes."""

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from packhorse.blobs.api import StoredBlob
from packhorse_services.pipeline.engine.spark_errors import translated
from packhorse_services.pipeline.storage import delta, queries
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.parquet import as_they_are, written
from packhorse_services.pipeline.storage.table_files import files_of, taken_out
from packhorse_services.pipeline.sweep.report import (
    BlobTotal,
    List,
    MarkState,
    MarkSummary,
    Remove,
    Totals,
)
from packhorse_services.pipeline.sweep.work import FindingKind, ReferenceSource

_BLOBS = "key string, length long, modified_ms long"
_FOUND = "source string, kind string, key string"
_REMOVALS = "key string, length long, removed boolean"
_COLUMNS = {"blobs": _BLOBS, "candidates": _BLOBS, "doomed": _BLOBS, "removals": _REMOVALS}
_SUMMARY = pa.schema(
    [("state", pa.string()), ("summary", pa.string()), ("at", pa.timestamp("us", "UTC"))]
)
_ROWS = 5_000
_BATCH_BLOBS = 100_000
_MAX_BATCHES = 64
_EXAMPLES = 20


def last_summary(location: Location, mark_id: str) -> MarkSummary | None:
    """Return what a mark's report says last, None where there is none; needs no session.

    Raises what `translated` raises.
    """
    table = f"marks/{mark_id}/summary"
    with translated("sweep"):
        if not DeltaTable.is_deltatable(location.delta_uri(table), location.delta_options()):
            return None
        newest = f'SELECT summary FROM {queries.RELATION} ORDER BY "at" DESC LIMIT 1'  # noqa: S608
        found = list(queries.rows(delta.stored(location, table), newest))
    return _summary(json.loads(found[0]["summary"])) if found else None


class SparkReport:
    """The `Report` of one mark."""

    def __init__(self, spark: SparkSession, location: Location, mark_id: str) -> None:
        self._spark, self._location, self._mark_id = spark, location, mark_id

    def state(self) -> MarkSummary | None:
        """Read the last summary."""
        return last_summary(self._location, self._mark_id)

    def note(self, summary: MarkSummary) -> None:
        """Append a summary."""
        row = (summary.state.value, json.dumps(summary.as_json()), datetime.now(UTC))
        named = dict(zip(_SUMMARY.names, ([value] for value in row), strict=True))
        with translated("mark"):
            write_deltalake(
                self._location.delta_uri(f"marks/{self._mark_id}/summary"),
                pa.table(named, schema=_SUMMARY),
                mode="append",
                storage_options=self._location.delta_options(),
            )

    def list_blobs(self, listing: List, pieces: Sequence[Sequence[str]]) -> Totals:
        """List the groups of shards on the executors."""

        def rows(shards: Sequence[str]) -> Iterator[tuple[Any, ...]]:
            for blob in listing(shards):
                yield blob.key, blob.length, blob.modified_ms

        with translated("mark"):
            self._write(self._scattered(rows, pieces, _BLOBS), "blobs")
            return _totals(totals(self._table("blobs")))

    def begin(self, round_name: str) -> None:
        """Remove what is there."""
        with translated(round_name):
            self._forget(f"references/{round_name}")

    def read(self, round_name: str, source: ReferenceSource) -> None:
        """Append what one source refers to."""
        scan, name = source.scan, source.name

        def rows(piece: Any) -> Iterator[tuple[Any, ...]]:
            for found in scan(piece):
                yield name, found.kind.value, found.key

        with translated(round_name):
            found = self._scattered(rows, source.pieces, _FOUND)
            found.write.mode("append").parquet(self._path(f"references/{round_name}"))

    def body_not_read(self, round_name: str) -> str | None:
        """Compare what the log has with what was read."""
        with translated(round_name):
            row = never_read(self._found(round_name)).first()
        return None if row is None else str(row["key"])

    def unreadable(self, round_name: str) -> tuple[int, tuple[str, ...]]:
        """Count what is no package; few keys come to the driver."""
        with translated(round_name):
            keys = unreadable(self._found(round_name))
            some = tuple(row["key"] for row in keys.orderBy("key").limit(_EXAMPLES).collect())
            return (keys.count() if len(some) == _EXAMPLES else len(some)), some

    def choose_candidates(self, round_name: str, before_ms: int) -> Totals:
        """Write the candidates' table."""
        with translated(round_name):
            found = self._found(round_name)
            self._write(unused(self._table("blobs"), found, before_ms), "candidates")
            return _totals(totals(self._table("candidates")))

    def choose_doomed(self, round_name: str) -> Totals:
        """Write the table of what goes now."""
        with translated(round_name):
            found = self._found(round_name)
            going = doomed(self._table("candidates"), found, self._removals())
            self._write(going, "doomed")
            return _totals(totals(self._table("doomed")))

    def remove_doomed(self, remove: Remove, check: Callable[[], None]) -> Totals:
        """Remove batch by batch; a batch that was cut short is chosen and removed again."""
        with translated("sweep"):
            going = self._table("doomed")
            batches = min(_MAX_BATCHES, -(-going.count() // _BATCH_BLOBS))
        for number in range(batches):
            check()
            with translated("sweep"):
                batch = going.where(f.pmod(f.xxhash64("key"), f.lit(batches)) == number)
                tasks = self._spark.sparkContext.defaultParallelism * 2
                done = batch.repartition(tasks).mapInArrow(_removing(remove), _REMOVALS)
                self._write(done, "removals", keep=True)
        with translated("sweep"):
            return _totals(totals(self._removals().where("removed")))

    def end(self, round_names: Sequence[str]) -> None:
        """Delete the references, which are many and of no use any more."""
        with translated("mark"):
            for name in round_names:
                self._forget(f"references/{name}")

    def _removals(self) -> DataFrame:
        delta.prepare(self._location, {self._name("removals"): _columns(_REMOVALS)})
        # A sweep that was killed may have written one key down twice.
        return (
            self._table("removals")
            .groupBy("key")
            .agg(f.max("length").alias("length"), f.max("removed").alias("removed"))
        )

    def _scattered(
        self, rows: Callable[[Any], Iterator[tuple[Any, ...]]], pieces: Sequence[Any], schema: str
    ) -> DataFrame:
        """Return the rows of all pieces; each task does some of the pieces."""
        given, names = list(pieces), [column.split()[0] for column in schema.split(", ")]

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from _batched(rows(given[number]), names)

        tasks = max(1, min(len(given), self._spark.sparkContext.defaultParallelism * 2))
        return self._spark.range(0, len(given), 1, tasks).mapInArrow(run, schema)

    def _name(self, table: str) -> str:
        return f"marks/{self._mark_id}/{table}"

    def _path(self, table: str) -> str:
        return self._location.spark_path(self._name(table))

    def _table(self, table: str) -> DataFrame:
        name = self._name(table)
        return delta.frame_of(self._spark, self._location, name, delta.stored(self._location, name))

    def _found(self, round_name: str) -> DataFrame:
        return self._spark.read.schema(_FOUND).parquet(self._path(f"references/{round_name}"))

    def _write(self, frame: DataFrame, table: str, *, keep: bool = False) -> None:
        """Let a table have these rows, in the place of what it has unless that is to `keep`."""
        name, columns = self._name(table), _columns(_COLUMNS[table])
        delta.prepare(self._location, {name: columns})
        added = [one.action for one in written(frame, self._location, as_they_are(name, columns))]
        held = delta.stored(self._location, name)
        gone = [] if keep else taken_out(files_of(held), rows_go=True)
        delta.commit(self._location, name, held, [*gone, *added])

    def _forget(self, table: str) -> None:
        path, files = self._hadoop(table)
        files.delete(path, True)

    def _hadoop(self, table: str) -> tuple[Any, Any]:
        """Return a path and its file system, as Spark itself sees them."""
        context: Any = self._spark.sparkContext
        path = context._jvm.org.apache.hadoop.fs.Path(self._path(table))
        return path, path.getFileSystem(context._jsc.hadoopConfiguration())


def _columns(names: str) -> StructType:
    return cast(StructType, StructType.fromDDL(names))


def _removing(remove: Remove) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        blobs = (StoredBlob(**row) for batch in batches for row in batch.to_pylist())
        rows = ((done.key, done.length, done.removed) for done in remove(blobs))
        yield from _batched(rows, ["key", "length", "removed"])

    return run


def _batched(rows: Iterator[tuple[Any, ...]], names: list[str]) -> Iterator[pa.RecordBatch]:
    held: list[tuple[Any, ...]] = []
    for row in rows:
        held.append(row)
        if len(held) >= _ROWS:
            yield _record_batch(held, names)
            held = []
    if held:
        yield _record_batch(held, names)


def _record_batch(rows: list[tuple[Any, ...]], names: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(dict(zip(names, zip(*rows, strict=True), strict=True)))


def _totals(frame: DataFrame) -> Totals:
    found = {row["kind"]: BlobTotal(row["count"], row["bytes"]) for row in frame.collect()}
    return Totals(found.get("binaries", BlobTotal()), found.get("packages", BlobTotal()))


def _summary(stored: dict[str, Any]) -> MarkSummary:
    counts = {
        name: Totals(*(BlobTotal(**stored[name][kind]) for kind in ("binaries", "packages")))
        for name in ("listed", "unused", "swept")
    }
    names = ("subscribers", "unreadable_keys")
    lists = {name: tuple(stored.get(name, ())) for name in names}  # older marks lack the second
    return MarkSummary(**{**stored, **lists, "state": MarkState(stored["state"]), **counts})


_KEEPING = (FindingKind.REFERENCE.value, FindingKind.NAME.value, FindingKind.UNREADABLE.value)


def unused(blobs: DataFrame, found: DataFrame, before_ms: int) -> DataFrame:
    """Return the `blobs` that are older than a time and that no row of `found` keeps."""
    return blobs.where(f.col("modified_ms") <= before_ms).join(_kept(found), "key", "left_anti")


def doomed(candidates: DataFrame, found: DataFrame, removals: DataFrame) -> DataFrame:
    """Return the candidates that `found` keeps not either, and that are not gone already."""
    gone = removals.where("removed").select("key")
    return candidates.join(_kept(found), "key", "left_anti").join(gone, "key", "left_anti")


def never_read(found: DataFrame) -> DataFrame:
    """Return the keys of bodies that the log has and that nobody could read."""
    of_log = found.where(f.col("kind") == FindingKind.IN_LOG.value).select("key").distinct()
    read = found.where(f.col("kind") == FindingKind.READ.value).select("key")
    return of_log.join(read, "key", "left_anti")


def unreadable(found: DataFrame) -> DataFrame:
    """Return the keys of what is no stored body, each once."""
    return found.where(f.col("kind") == FindingKind.UNREADABLE.value).select("key").distinct()


def totals(blobs: DataFrame) -> DataFrame:
    """Return `kind`, `count` and `bytes`, a row for each kind of blob."""
    return blobs.groupBy(f.substring_index("key", "/", 1).alias("kind")).agg(
        f.count("*").alias("count"), f.sum("length").alias("bytes")
    )


def _kept(found: DataFrame) -> DataFrame:
    return found.where(f.col("kind").isin(*_KEEPING)).select("key").distinct()
