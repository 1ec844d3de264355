"""Which packages the log still names: read from end to end, headers only.

Offsets can be too low: a publisher that was paused may have appended a package twice. So nothing
is removed before a whole reading of the log has named it nowhere (R21).
"""

import time
from collections.abc import Callable, Collection, Iterator, Sequence

from packhorse.messaging.api import (
    Bounds,
    Edge,
    Journal,
    JournalUnavailable,
    OffsetOutOfRange,
    Reader,
    Record,
)
from packhorse.wire.package_codec import PACKAGE_ID_HEADER

_POLL_S = 0.5
_PATIENCE_S = 30.0
_BEAT_S = 20.0


def last_offsets(
    journal: Journal,
    topic: str,
    bounds: Bounds,
    package_ids: Collection[str],
    beat: Callable[[], None],
) -> dict[str, int]:
    """Return the highest offset of each of the packages that the log names.

    `beat` is called every few seconds of a long reading. Raises `JournalUnavailable` unless the
    end was reached: then nothing is known.
    """
    if not package_ids or bounds.oldest >= bounds.next:
        return {}
    wanted = {package_id.encode(): package_id for package_id in package_ids}
    found: dict[str, int] = {}
    with journal.reader(topic, Edge.OLDEST, partition=0, values=False) as reader:
        for records in _batches(reader, bounds.next, beat):
            for record in records:
                name = wanted.get(record.headers.get(PACKAGE_ID_HEADER, b""))
                if name is not None:
                    found[name] = record.offset
    return found


def _batches(reader: Reader, end: int, beat: Callable[[], None]) -> Iterator[Sequence[Record]]:
    """Yield what the reader gives until it has passed `end`."""
    patience = beaten = time.monotonic()
    patience += _PATIENCE_S
    while True:
        records = _poll(reader)
        now = time.monotonic()
        if records:
            yield records
        if reader.position() >= end:
            return
        if records:
            patience = now + _PATIENCE_S
        elif now > patience:
            raise JournalUnavailable("the journal's end was not reached in time; try again later")
        if now > beaten + _BEAT_S:
            beat()
            beaten = now


def _poll(reader: Reader) -> Sequence[Record]:
    try:
        return reader.poll(_POLL_S)
    except OffsetOutOfRange as error:  # retention went by while we read
        raise JournalUnavailable("the log was cut while it was read; try again") from error
