"""From records to columns: which packages are in the queues of an agent, and what is kept of them.

Other agents' packages and TEST packages are in no queue; a record that can't be read is in all.
"""

from collections.abc import Iterable

from packhorse.messaging.api import Record
from packhorse.wire.messages import Action
from packhorse.wire.package_codec import (
    AGENT_HEADER,
    PACKAGE_ID_HEADER,
    EntryRow,
    decode_entry_row,
)
from packhorse.wire.record import Undecodable
from packhorse_services.publisher.queues.columns import Segment

Row = tuple[Record, EntryRow | None]


def rows_of(records: Iterable[Record], agent: bytes) -> list[Row]:
    """Return what the queues of `agent` show of `records`; None stands for what can't be read."""
    rows: list[Row] = []
    for record in records:
        headers = record.headers
        if headers.get(AGENT_HEADER) != agent:
            continue
        try:
            row = decode_entry_row(headers)
        except Undecodable:
            rows.append((record, None))
        else:
            if row[3] is not Action.TEST:
                rows.append((record, row))
    return rows


def add_rows(segments: list[Segment], rows: Iterable[Row]) -> None:
    """Append to the last segment, and seal it and begin another one when it is full."""
    segment = segments[-1] if segments else None
    for record, row in rows:
        if segment is None or not segment.takes(record):
            if segment is not None:
                segment.seal()
            segment = Segment(record)
            segments.append(segment)
        if row is None:
            name = record.headers.get(PACKAGE_ID_HEADER, b"").decode("utf-8", "replace")
            segment.add_undecodable(record, name)
        else:
            segment.add(record, row)
