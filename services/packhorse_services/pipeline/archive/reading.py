"""Ranges of a journal as Arrow batches in the columns of bronze, bounded by bytes (R30).

Brokers stamp the product's own topics. Where somebody else has made a topic, its senders may say
any time, also one in microseconds, or none at all. Such a record is archived all the same, under
the nearest time that fits: one from before 1970 is then of the oldest day there is, which the next
upkeep may let go, and one from after `LATEST_MS` is of a day that no upkeep reaches.
"""

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from packhorse.messaging.api import Journal, JournalUnavailable, OffsetOutOfRange, Reader, Record
from packhorse_services.pipeline.archive.places import OffsetRange
from packhorse_services.pipeline.errors import HistoryGap
from packhorse_services.pipeline.storage.schemas import BRONZE

LATEST_MS = 253_370_764_800_000
"""The beginning of the year 9999. Days and hours end behind it, for which there must be room."""

SAID = "packhorse-said-time-ms"
"""The header, in the archive alone, of a record that said another time than bronze has."""


def plausible_ms(time_ms: int) -> int:
    """Return the time nearest to this one that is from 1970 to `LATEST_MS`."""
    return min(max(time_ms, 0), LATEST_MS)


def plausible(record: Record) -> tuple[int, Mapping[str, bytes]]:
    """Return a record's time as `plausible_ms` has it, and its headers, with what it said."""
    time_ms = plausible_ms(record.time_ms)
    if time_ms == record.time_ms:
        return time_ms, record.headers
    return time_ms, {**record.headers, SAID: str(record.time_ms).encode()}


def same_headers(one: Mapping[str, bytes], other: Mapping[str, bytes]) -> bool:
    """Return whether two records have the same headers, what they said of their times left out."""
    return {**one, SAID: b""} == {**other, SAID: b""}


_BATCH_RECORDS = 5_000
_POLL_S = 1.0
_PATIENCE_S = 60.0
"""How long a restart of the journal may take."""
_BACK_OFF_S = 0.5
_DAY_MS = 24 * 3600 * 1000

_COLUMNS = to_arrow_schema(BRONZE, timezone="UTC")


def read_batches(journal: Journal, wanted: OffsetRange, identity: str) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range, in order.

    Raises `HistoryGap` when one of them is gone, `JournalUnavailable` when they do not come. It
    does not use `read_to`, which gives up when the journal is away: this waits for its restart.
    """
    topic, partition, end = wanted.topic, wanted.partition, wanted.end
    with journal.reader(topic, wanted.start, partition=partition) as reader:
        patience = time.monotonic() + _PATIENCE_S
        while (position := reader.position(partition)) < end:
            records = _poll(reader, end - position, until=patience)
            for record in records:
                if record.damage:
                    raise JournalUnavailable(record.damage)
            found = [record for record in records if record.offset < end]
            if found:
                yield as_batch(found, identity)
                patience = time.monotonic() + _PATIENCE_S
            elif time.monotonic() > patience:
                raise JournalUnavailable(
                    f"offset {position} of {topic}/{partition} does not come; try again later"
                )


def _poll(reader: Reader, left: int, *, until: float) -> Sequence[Record]:
    """Return the next records; none while the journal is away, which is an error after `until`."""
    try:
        return reader.poll(_POLL_S, max_records=min(left, _BATCH_RECORDS))
    except OffsetOutOfRange as error:
        raise HistoryGap(
            f"offset {error.wanted} of {error.topic}/{error.partition} left the journal while it "
            f"was read; it goes on at {error.bounds.oldest}"
        ) from error
    except JournalUnavailable:
        if time.monotonic() > until:
            raise
        time.sleep(_BACK_OFF_S)
        return ()


def from_kafka(batch: pa.RecordBatch, identities: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of Spark's Kafka source in the columns of bronze, a batch for each topic."""
    times = pc.cast(batch.column("timestamp"), pa.int64()).to_pylist()
    rows = zip(
        *(batch.column(name).to_pylist() for name in ("topic", "partition", "offset")),
        times,
        batch.column("key").to_pylist(),
        headers_of(batch.column("headers")),
        batch.column("value").to_pylist(),
        strict=True,
    )
    records = [
        Record(topic, number, offset, micros // 1000, _text(key), headers, value or b"")
        for topic, number, offset, micros, key, headers, value in rows
    ]
    for topic, found in itertools.groupby(records, key=lambda record: record.topic):
        yield as_batch(list(found), identities[topic])


def _text(key: bytes | None) -> str | None:
    return None if key is None else key.decode(errors="replace")


def as_batch(records: Sequence[Record], identity: str) -> pa.RecordBatch:
    """Return the records of a topic with this `identity` in the columns of bronze."""
    times, headers = zip(*map(plausible, records), strict=True)
    columns: list[list[Any]] = [
        [record.topic for record in records],
        [record.partition for record in records],
        [record.offset for record in records],
        [time_ms * 1000 for time_ms in times],
        [identity] * len(records),
        [time_ms // _DAY_MS for time_ms in times],
        [record.key for record in records],
    ]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, _COLUMNS.types, strict=False)]
    values = pa.array([record.value for record in records], pa.binary())
    return pa.RecordBatch.from_arrays([*arrays, _headers(headers), values], schema=_COLUMNS)


def _headers(all_headers: Sequence[Mapping[str, bytes]]) -> pa.ListArray:
    """Made of its parts: a tenth of what a list of dictionaries for each record costs."""
    kind = _COLUMNS.field("headers").type
    pairs = [
        pa.array([key for headers in all_headers for key in headers], pa.string()),
        pa.array([value for headers in all_headers for value in headers.values()], pa.binary()),
    ]
    ends = itertools.accumulate((len(headers) for headers in all_headers), initial=0)
    flat = pa.StructArray.from_arrays(pairs, fields=list(kind.value_type))
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), flat, type=kind)


def headers_of(column: pa.ListArray) -> Iterator[dict[str, bytes]]:
    """Yield each record's headers; one without a value has an empty one."""
    pairs = column.flatten()
    keys = pairs.field("key").to_pylist()
    values = pairs.field("value").fill_null(b"").to_pylist()
    end = 0
    for length in pc.list_value_length(column).fill_null(0).to_pylist():
        begin, end = end, end + length
        yield dict(zip(keys[begin:end], values[begin:end], strict=True))
