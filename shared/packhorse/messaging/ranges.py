"""Reading a range of a partition to its end, headers only."""

import time
from collections.abc import Iterator, Sequence

from packhorse.messaging.api import Journal, JournalUnavailable, OffsetOutOfRange, Reader, Record

_POLL_S = 0.5
_PATIENCE_S = 20.0


def read_range(
    journal: Journal, topic: str, start: int, end: int, partition: int = 0
) -> Iterator[Record]:
    """Yield the records from `start` up to, not including, `end`, without their values.

    `start` must be in the log, and the log must reach `end`. Raises `JournalUnavailable` unless
    the end was reached: an empty poll proves nothing.
    """
    if start >= end:
        return
    with journal.reader(topic, start, partition=partition, values=False) as reader:
        patience = time.monotonic() + _PATIENCE_S
        while time.monotonic() < patience:
            records = _poll(reader)
            yield from (record for record in records if record.offset < end)
            if reader.position(partition) >= end:
                return
            if records:
                patience = time.monotonic() + _PATIENCE_S
    raise JournalUnavailable("the journal's end was not reached in time; try again later")


def _poll(reader: Reader) -> Sequence[Record]:
    try:
        return reader.poll(_POLL_S)
    except OffsetOutOfRange as error:  # retention went by while we read
        raise JournalUnavailable("the log was cut while it was read; try again") from error
