"""Archived packages to events: what each does to which path, for Spark to sort and join."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import types as t

from packhorse.blobs.api import BlobStore
from packhorse.blobs.open import open_blobs
from packhorse.content.node import ROOT
from packhorse_services.pipeline.history.decoding import Event, events_of

EVENTS = t.StructType(
    [
        t.StructField("offset", t.LongType(), False),
        t.StructField("kind", t.StringType(), False),
        t.StructField("path", t.StringType(), False),
        t.StructField("range_from", t.StringType(), False),
        t.StructField("range_to", t.StringType(), False),
        t.StructField("type", t.StringType()),
        t.StructField("properties", t.StringType()),
        t.StructField("binaries", t.StringType()),
        t.StructField("package_id", t.StringType(), False),
        t.StructField("position", t.IntegerType(), False),
    ]
)
"""`kind` is write, clear, or unreadable: then `path` says why, and `fold` refuses to go on.

A clear removes `path` and all below it, or of that only what is >= `range_from` and <
`range_to` by bytes (empty: no bound). `position` orders the writes of one package.
"""

_BATCH_ROWS = 4_000
_BATCH_CHARACTERS = 8 * 1024**2

_ARROW = pa.schema(
    [
        pa.field("offset", pa.int64(), False),
        *[pa.field(name, pa.string(), False) for name in ("kind", "path")],
        *[pa.field(name, pa.string(), False) for name in ("range_from", "range_to")],
        *[pa.field(name, pa.string()) for name in ("type", "properties", "binaries")],
        pa.field("package_id", pa.string(), False),
        pa.field("position", pa.int32(), False),
    ]
)


def package_events(packages: DataFrame, bodies_url: str, within: str = ROOT) -> DataFrame:
    """Return what the packages do, as `EVENTS`; clears of a package count before its writes.

    `packages` has the columns of `schemas.BRONZE`, all records of the package topic. Bodies that
    went by reference are streamed from the blob store at `bodies_url`. A package that can't be
    read becomes an event of kind unreadable. Only what changes `within` and below it is told;
    packages about other paths are passed over without a look at their bodies.
    """

    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        bodies = open_blobs(bodies_url)
        try:
            yield from _batches(_decoded(batches, bodies, within))
        finally:
            bodies.close()

    return packages.select("offset", "headers", "value").mapInArrow(decode, EVENTS)


@contextmanager
def kept(frame: DataFrame) -> Iterator[DataFrame]:
    """Keep a frame that is read several times on the workers' disks while the block lasts."""
    frame.persist(StorageLevel.DISK_ONLY)
    try:
        yield frame
    finally:
        frame.unpersist()


def _decoded(batches: Iterable[pa.RecordBatch], bodies: BlobStore, within: str) -> Iterator[Event]:
    for batch in batches:
        offsets, listed, values = batch.columns
        for row in range(batch.num_rows):
            headers = _headers(listed[row].as_py())
            yield from events_of(offsets[row].as_py(), headers, values[row].as_py(), bodies, within)


def _headers(listed: list[dict[str, Any]]) -> dict[str, bytes]:
    return {header["key"]: header["value"] or b"" for header in listed}


def _batches(events: Iterable[Event]) -> Iterator[pa.RecordBatch]:
    """Group events into batches of bounded size."""
    waiting: list[Event] = []
    size = 0
    for event in events:
        waiting.append(event)
        size += event.size
        if len(waiting) >= _BATCH_ROWS or size >= _BATCH_CHARACTERS:
            yield _batch(waiting)
            waiting, size = [], 0
    if waiting:
        yield _batch(waiting)


def _batch(events: list[Event]) -> pa.RecordBatch:
    columns = zip(*events, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)
