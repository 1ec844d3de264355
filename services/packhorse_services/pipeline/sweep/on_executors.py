"""What runs on the executors: rows of blobs, as batches of Arrow."""

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from packhorse.blobs.api import StoredBlob
from packhorse_services.pipeline.pieces import batches
from packhorse_services.pipeline.sweep.comparing import FOUND_IN, REMOVALS
from packhorse_services.pipeline.sweep.report import Remove
from packhorse_services.pipeline.sweep.work import BlobScan

ROWS = 5_000
"""So many make a batch."""

_Batches = Iterator[pa.RecordBatch]


def reading(name: str, scan: BlobScan) -> Callable[[_Batches], _Batches]:
    """Return what makes `comparing.FOUND_IN` of blobs."""
    shape = to_arrow_schema(FOUND_IN)

    def run(given: _Batches) -> _Batches:
        rows = (
            (name, found.kind.value, found.key, blob.key, blob.length, blob.modified_ms)
            for blob, found in scan.read(_blobs(given))
        )
        yield from batches(rows, shape, ROWS)

    return run


def removing(remove: Remove) -> Callable[[_Batches], _Batches]:
    """Return what removes blobs, and makes `comparing.REMOVALS` of them."""
    shape = to_arrow_schema(REMOVALS)

    def run(given: _Batches) -> _Batches:
        rows = ((done.key, done.length, done.removed) for done in remove(_blobs(given)))
        yield from batches(rows, shape, ROWS)

    return run


def _blobs(given: _Batches) -> Iterator[StoredBlob]:
    """Yield the blobs of batches that have key, length and modified_ms in this order."""
    for batch in given:
        columns = (column.to_pylist() for column in batch.columns)
        for row in zip(*columns, strict=True):
            yield StoredBlob(*row)
