"""What runs on the executors: rows of pieces and of blobs, as batches of Arrow."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from packhorse.blobs.api import StoredBlob
from packhorse_services.pipeline.pieces import batches
from packhorse_services.pipeline.sweep.comparing import FOUND_IN, REMOVALS
from packhorse_services.pipeline.sweep.report import Remove
from packhorse_services.pipeline.sweep.work import BlobScan

_ROWS = 5_000

_Batches = Iterator[pa.RecordBatch]


def making(
    rows: Callable[[Any], Iterator[tuple[object, ...]]], schema: StructType
) -> Callable[[Iterable[Any]], _Batches]:
    """Return what makes rows with these columns of pieces; `rows` yields those of a piece."""
    shape = to_arrow_schema(schema)

    def run(pieces: Iterable[Any]) -> _Batches:
        yield from batches(chain.from_iterable(map(rows, pieces)), shape, _ROWS)

    return run


def reading(name: str, scan: BlobScan) -> Callable[[_Batches], _Batches]:
    """Return what makes `comparing.FOUND_IN` of blobs."""
    shape = to_arrow_schema(FOUND_IN)

    def run(given: _Batches) -> _Batches:
        rows = (
            (name, found.kind.value, found.key, blob.key, blob.length, blob.modified_ms)
            for blob, found in scan.read(_blobs(given))
        )
        yield from batches(rows, shape, _ROWS)

    return run


def removing(remove: Remove) -> Callable[[_Batches], _Batches]:
    """Return what removes blobs, and makes `comparing.REMOVALS` of them."""
    shape = to_arrow_schema(REMOVALS)

    def run(given: _Batches) -> _Batches:
        rows = ((done.key, done.length, done.removed) for done in remove(_blobs(given)))
        yield from batches(rows, shape, _ROWS)

    return run


def _blobs(given: _Batches) -> Iterator[StoredBlob]:
    """Yield the blobs of batches that have key, length and modified_ms in this order."""
    for batch in given:
        columns = (column.to_pylist() for column in batch.columns)
        for row in zip(*columns, strict=True):
            yield StoredBlob(*row)
