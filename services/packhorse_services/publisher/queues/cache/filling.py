"""From records to columns: which packages are in the queues of an agent, and what is kept of them.

Other agents' packages and TEST packages are in no queue; a record that can't be read is in all.
"""

from collections.abc import Iterable, Iterator, Sequence

from packhorse.messaging.api import Record
from packhorse.wire.actions import is_probe
from packhorse.wire.package_codec import (
    ACTION_NUMBERS,
    AGENT_HEADER,
    PACKAGE_ID_HEADER,
    decode_entry_row,
)
from packhorse.wire.record import Undecodable
from packhorse_services.publisher.queues.cache.columns import ColumnSegment, Row, undecodable

_STRIDE = 250
_PROBES = {number for action, number in ACTION_NUMBERS.items() if is_probe(action)}


def strides(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """Yield the records in portions, so that no lock is held for more than a millisecond or two."""
    for start in range(0, len(records), _STRIDE):
        yield records[start : start + _STRIDE]


def rows_of(records: Iterable[Record], agent: bytes) -> list[Row]:
    """Return what the queues of `agent` show of `records`."""
    rows: list[Row] = []
    for record in records:
        headers = record.headers
        found = headers.get(AGENT_HEADER, agent)  # one that does not say whose it is, is in all
        if found != agent:
            continue
        if AGENT_HEADER not in headers:
            rows.append((record, undecodable("")))
            continue
        try:
            row = decode_entry_row(headers)
        except Undecodable:
            row = undecodable(headers.get(PACKAGE_ID_HEADER, b"").decode("utf-8", "replace"))
        if row[3] not in _PROBES:
            rows.append((record, row))
    return rows


def add_rows(segments: list[ColumnSegment], rows: Sequence[Row]) -> None:
    """Append to the last segment, and seal it and begin another one when it is full."""
    done = segments[-1].extend(rows) if segments else 0
    while done < len(rows):
        if segments:
            segments[-1].seal()
        segments.append(ColumnSegment(rows[done][0]))
        done += segments[-1].extend(rows[done:])
