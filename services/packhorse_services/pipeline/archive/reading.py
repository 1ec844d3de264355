"""A range of a partition as Arrow batches in the columns of bronze, bounded by bytes (R30)."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from packhorse.messaging.api import Journal, JournalUnavailable, OffsetOutOfRange, Reader, Record
from packhorse_services.pipeline.errors import HistoryGap
from packhorse_services.pipeline.schemas import BRONZE

_BATCH_BYTES = 8 * 1024 * 1024
_BATCH_RECORDS = 5_000
_POLL_S = 1.0
_PATIENCE_S = 20.0
_DAY_MS = 24 * 3600 * 1000

_COLUMNS = to_arrow_schema(BRONZE, timezone="UTC")


def read_batches(
    journal: Journal, topic: str, partition: int, ends: tuple[int, int], identity: str
) -> Iterator[pa.RecordBatch]:
    """Yield the records from the first of `ends` up to, not including, the second, in order.

    Raises `HistoryGap` when one of them is gone, `JournalUnavailable` when they do not come.
    """
    start, end = ends
    with journal.reader(topic, start, partition=partition) as reader:
        patience = time.monotonic() + _PATIENCE_S
        while (position := reader.position(partition)) < end:
            records = _poll(reader, end - position)
            wanted = [record for record in records if record.offset < end]
            if wanted:
                yield as_batch(wanted, identity)
                patience = time.monotonic() + _PATIENCE_S
            elif time.monotonic() > patience:
                raise JournalUnavailable(
                    f"offset {position} of {topic}/{partition} does not come; try again later"
                )


def _poll(reader: Reader, left: int) -> Sequence[Record]:
    try:
        return reader.poll(_POLL_S, max_records=min(left, _BATCH_RECORDS), max_bytes=_BATCH_BYTES)
    except OffsetOutOfRange as error:
        raise HistoryGap(
            f"offset {error.wanted} of {error.topic}/{error.partition} left the journal while it "
            f"was read; it goes on at {error.bounds.oldest}"
        ) from error


def as_batch(records: Sequence[Record], identity: str) -> pa.RecordBatch:
    """Return the records of a topic with this `identity` in the columns of bronze."""
    times = [record.time_ms for record in records]
    columns: list[list[Any]] = [
        [record.topic for record in records],
        [record.partition for record in records],
        [record.offset for record in records],
        [time_ms * 1000 for time_ms in times],
        [identity] * len(records),
        [time_ms // _DAY_MS for time_ms in times],
        [record.key for record in records],
        [[{"key": k, "value": v} for k, v in record.headers.items()] for record in records],
        [record.value for record in records],
    ]
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, _COLUMNS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_COLUMNS)
