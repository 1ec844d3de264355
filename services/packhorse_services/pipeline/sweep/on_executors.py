"""What runs on the executors: rows of pieces and of blobs, as batches of Arrow."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from packhorse.blobs.api import StoredBlob
from packhorse_services.pipeline.sweep.comparing import HOLDER
from packhorse_services.pipeline.sweep.report import Remove
from packhorse_services.pipeline.sweep.work import BlobScan

_ROWS = 5_000

Rows = Callable[[Any], Iterator[tuple[Any, ...]]]
"""Yields the rows of a piece."""

_Batches = Iterator[pa.RecordBatch]


def scattered(
    spark: SparkSession, rows: Rows, pieces: Sequence[Any], schema: str, tasks: int
) -> DataFrame:
    """Return the rows of all pieces; each of at most so many tasks does some of the pieces."""
    given, names = list(pieces), [column.split()[0] for column in schema.split(", ")]

    def run(batches: _Batches) -> _Batches:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _batched(rows(given[number]), names)

    tasks = max(1, min(len(given), tasks))
    return spark.range(0, len(given), 1, tasks).mapInArrow(run, schema)


def reading(name: str, scan: BlobScan) -> Callable[[_Batches], _Batches]:
    """Return what makes `comparing.FOUND_IN` of blobs."""

    def run(batches: _Batches) -> _Batches:
        rows = (
            (name, found.kind.value, found.key, blob.key, blob.length, blob.modified_ms)
            for blob, found in scan.read(_blobs(batches))
        )
        yield from _batched(rows, ["source", "kind", "key", *HOLDER])

    return run


def removing(remove: Remove) -> Callable[[_Batches], _Batches]:
    """Return what removes blobs, and makes key, length and removed of them."""

    def run(batches: _Batches) -> _Batches:
        rows = ((done.key, done.length, done.removed) for done in remove(_blobs(batches)))
        yield from _batched(rows, ["key", "length", "removed"])

    return run


def _blobs(batches: _Batches) -> Iterator[StoredBlob]:
    """Yield the blobs of batches that have key, length and modified_ms in this order."""
    for batch in batches:
        columns = (column.to_pylist() for column in batch.columns)
        for row in zip(*columns, strict=True):
            yield StoredBlob(*row)


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
