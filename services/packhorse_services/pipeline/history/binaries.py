"""The binaries that content of the past refers to: they may be gone from the blob store."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from packhorse.blobs.api import binary_key
from packhorse.blobs.open import open_blobs
from packhorse.content.rows import parse_binaries

_MISSING = "digest string, path string"
_LOST = pa.schema([("digest", pa.string()), ("path", pa.string())])


def missing_binaries(content: DataFrame, blobs_url: str) -> DataFrame:
    """Return digest and path of binaries that the content refers to and the store has no more.

    Those that are there are renewed, so that no sweep takes them before the nodes are back (R22).
    """

    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        blobs = open_blobs(blobs_url)
        try:
            for batch in batches:
                digests, paths = (column.to_pylist() for column in batch.columns)
                lost = [
                    {"digest": digest, "path": path}
                    for digest, path in zip(digests, paths, strict=True)
                    if blobs.renew(binary_key(digest)) is None
                ]
                yield pa.RecordBatch.from_pylist(lost, _LOST)
        finally:
            blobs.close()

    referred = content.select("binaries", "path").mapInArrow(_digests, _MISSING)
    return referred.groupBy("digest").agg({"path": "min"}).mapInArrow(look, _MISSING)


def _digests(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        binaries, paths = (column.to_pylist() for column in batch.columns)
        rows = [
            {"digest": binary.sha256, "path": path}
            for text, path in zip(binaries, paths, strict=True)
            for binary in parse_binaries(text)
        ]
        yield pa.RecordBatch.from_pylist(rows, _LOST)
