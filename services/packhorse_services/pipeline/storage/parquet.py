"""Parquet files of the pipeline's tables, written by the tasks that have the rows (ADR 0033).

A task writes its files beside those of the table and names them; one commit on the driver adds
them all. A file that no commit adds belongs to nobody, and the upkeep deletes it.
"""

import itertools
import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import date
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.transaction import AddAction
from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from packhorse_services.pipeline.pieces import scattered
from packhorse_services.pipeline.storage import arrow_files
from packhorse_services.pipeline.storage.delta import ARCHIVE
from packhorse_services.pipeline.storage.location import Location
from packhorse_services.pipeline.storage.statistics import FileStatistics, bounded

GROUP_BYTES = 16 * 1024 * 1024
"""What a file collects in memory before it is written as a row group."""

FILE_BYTES = 128 * 1024 * 1024
"""A file ends once it is as large: whoever reads the table shares the work by files."""

OPEN_FILES = 64
"""More are not open at a time, though records of a foreign topic may name any number of days."""

_PARTITIONED = ("topic", "day")

_LOOKED_UP = ["topic", "partition", "journal_id", "key", "headers.list.element.key", "reason"]
"""Of raw records; all other columns of theirs hardly ever repeat a value."""


@dataclass(frozen=True, slots=True)
class File:
    """A finished file: what the log of its table will say of it."""

    table: str
    path: str
    size: int
    rows: int
    partition: Mapping[str, str]
    statistics: str

    @property
    def day(self) -> date:
        """The day of its rows."""
        return date.fromisoformat(self.partition["day"])

    @property
    def action(self) -> AddAction:
        """What adds it to its table."""
        now_ms = int(time.time() * 1000)
        return AddAction(
            *(self.path, self.size, dict(self.partition), now_ms, True), stats=self.statistics
        )


class Files:
    """Takes rows of tables, and makes files of them, each of one topic and day if they have these.

    Holds no more than `group_bytes` of rows and one batch, and `open_files` files, whatever the
    number of tables and days. A file of `file_bytes` is finished.
    """

    def __init__(
        self,
        location: Location,
        *,
        group_bytes: int = GROUP_BYTES,
        open_files: int = OPEN_FILES,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        self._location = location
        self._group_bytes, self._open_files = group_bytes, open_files
        self._file_bytes = file_bytes
        self._filesystem = arrow_files.filesystem(location)
        self._open: dict[tuple[str, str], _Open] = {}
        self._held = 0
        self.finished: list[File] = []

    def add(self, table: str, batch: pa.RecordBatch) -> None:
        """Take rows with the columns of the table's schema."""
        for values, rows in _partitions(batch):
            folder = "/".join(f"{name}={value}" for name, value in values.items())
            file = self._open.pop((table, folder), None)
            file = file or self._begin(table, folder, values, rows.schema)
            self._open[table, folder] = file  # the last one to be closed
            file.hold(rows)
            self._held += rows.nbytes
            if len(self._open) > self._open_files:
                self._release()
        if self._held >= self._group_bytes:
            self._write()

    def close(self) -> list[File]:
        """Finish all files, and return them."""
        self._write()
        for key in list(self._open):
            self._finish(key)
        return self.finished

    def abandon(self) -> None:
        """Discard unfinished files, so that no upload stays open; the upkeep deletes them."""
        for file in self._open.values():
            with suppress(OSError, pa.ArrowException):
                file.finish()

    def _begin(
        self, table: str, folder: str, partition: Mapping[str, str], schema: pa.Schema
    ) -> "_Open":
        name = "/".join(filter(None, (folder, f"part-{uuid.uuid4()}.parquet")))
        place = arrow_files.path(self._location, f"{table}/{name}")
        if isinstance(self._filesystem, fs.LocalFileSystem):
            self._filesystem.create_dir(place.rpartition("/")[0])
        sink = self._filesystem.open_output_stream(place)
        return _Open(table, name, partition, sink, _writer(sink, schema))

    def _write(self) -> None:
        """Write what is held. A file that got nothing since the last time is finished."""
        for key, file in list(self._open.items()):
            if not file.held or file.write() >= self._file_bytes:
                self._finish(key)
        self._held = 0

    def _release(self) -> None:
        """Finish the file that has been given no rows for the longest time."""
        key, file = next(iter(self._open.items()))
        if file.held:
            self._held -= sum(rows.nbytes for rows in file.held)
            file.write()
        self._finish(key)

    def _finish(self, key: tuple[str, str]) -> None:
        self.finished.append(self._open.pop(key).finish())


@dataclass(slots=True)
class _Open:
    """A file that may still grow."""

    table: str
    name: str
    partition: Mapping[str, str]
    sink: pa.NativeFile
    writer: pq.ParquetWriter
    held: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    statistics: FileStatistics = field(default_factory=FileStatistics)

    def hold(self, rows: pa.RecordBatch) -> None:
        self.held.append(rows)
        self.rows += rows.num_rows
        self.statistics.take(rows)

    def write(self) -> int:
        """Write what is held as a row group; returns how many bytes the file has."""
        rows = pa.Table.from_batches(self.held)
        self.held = []
        self.writer.write_table(rows, row_group_size=rows.num_rows)
        return int(self.sink.tell())

    def finish(self) -> File:
        self.writer.close()
        size = int(self.sink.tell())
        self.sink.close()
        said = self.statistics.as_json(self.rows)
        return File(self.table, self.name, size, self.rows, self.partition, said)


def _writer(sink: pa.NativeFile, schema: pa.Schema) -> pq.ParquetWriter:
    raw = "value" in schema.names
    return pq.ParquetWriter(
        sink,
        schema,
        compression="snappy",
        use_dictionary=_LOOKED_UP if raw else True,
        write_statistics=bounded(schema),
    )


def _partitions(batch: pa.RecordBatch) -> Iterable[tuple[dict[str, str], pa.RecordBatch]]:
    """Yield what the rows of a batch are partitioned by, and those rows without these columns."""
    names = [name for name in _PARTITIONED if name in batch.schema.names]
    there = [pc.unique(batch.column(name)).to_pylist() for name in names]
    for values in (dict(zip(names, each, strict=True)) for each in itertools.product(*there)):
        rows = batch
        if any(len(each) > 1 for each in there):
            rows = batch.filter(_where(batch, values))
        if rows.num_rows:
            yield {name: _text(value) for name, value in values.items()}, rows.drop_columns(names)


def _where(batch: pa.RecordBatch, values: Mapping[str, str | date]) -> pa.Array:
    same = [pc.equal(batch.column(name), value) for name, value in values.items()]
    return same[0] if len(same) == 1 else pc.and_(*same)


def _text(value: str | date) -> str:
    return value if isinstance(value, str) else value.isoformat()


T = TypeVar("T")

Write = Callable[[Files, Iterator[pa.RecordBatch]], None]
"""Makes files of what a task has been given."""


def written(given: DataFrame, location: Location, write: Write) -> list[File]:
    """Let the tasks of `given` write files, and return them all; no table has them yet."""
    return _named(given.mapInArrow(_writing(location, write), _NAMED))


def written_by_share(
    spark: SparkSession, location: Location, shares: Sequence[T], write: Callable[[Files, T], None]
) -> list[File]:
    """Let a task for each share write its files, and return them all; no table has them yet."""

    def write_own(files: Files, own: Iterable[T]) -> None:
        for share in own:
            write(files, share)

    if not shares:
        return []
    run = _writing(location, write_own)
    return _named(scattered(spark, shares, run, _NAMED, most=len(shares)))


_NAMED = "file string"


def _writing(
    location: Location, write: Callable[[Files, T], None]
) -> Callable[[T], Iterator[pa.RecordBatch]]:
    """Return what runs in a task, and names the files that `write` makes of what it is given."""

    def run(given: T) -> Iterator[pa.RecordBatch]:
        files = Files(location)
        try:
            write(files, given)
            made = files.close()
        except BaseException:
            files.abandon()
            raise
        yield pa.RecordBatch.from_pydict(
            {"file": pa.array([json.dumps(asdict(one)) for one in made], pa.string())}
        )

    return run


def _named(found: DataFrame) -> list[File]:
    return [File(**json.loads(row["file"])) for row in found.collect()]


def columns(table: str) -> pa.Schema:
    """Return the columns of a table of the archive as Arrow has them."""
    return to_arrow_schema(ARCHIVE[table], timezone="UTC")


def as_they_are(table: str, schema: StructType) -> Write:
    """Return what makes files of a table from rows that have its columns."""
    shape = to_arrow_schema(schema, timezone="UTC")

    def write(files: Files, batches: Iterator[pa.RecordBatch]) -> None:
        for batch in batches:
            arrays = [batch.column(one.name).cast(one.type) for one in shape]
            files.add(table, pa.RecordBatch.from_arrays(arrays, schema=shape))

    return write
