"""Looking for this producer's packages in the journal, before anything is appended again (R26)."""

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from packhorse.messaging.api import (
    Edge,
    Journal,
    JournalUnavailable,
    OffsetOutOfRange,
    Reader,
    Record,
)
from packhorse.wire.package_codec import PACKAGE_ID_HEADER, decode_entry
from packhorse.wire.record import Undecodable
from packhorse_services.publisher.outbox import Number

_POLL_S = 0.5
_PATIENCE_S = 20.0


@dataclass
class Findings:
    """What the journal holds of one producer, from some offset to its end."""

    end: int
    """The offset that the next record will get."""
    offsets: dict[str, int] = field(default_factory=dict)
    """Where the wanted packages are; the first place of one that is there twice."""
    highest: Number = (0, 0)


def search(
    journal: Journal, topic: str, start: int | Edge, producer: str, wanted: Collection[str]
) -> Findings:
    """Read headers from `start` to what is the end now; from the oldest if `start` is gone.

    Raises `JournalUnavailable` when the end is not reached: then nothing is known.
    """
    bounds = journal.bounds(topic)
    findings = Findings(bounds.next)
    first = bounds.oldest
    if isinstance(start, int) and bounds.oldest <= start <= bounds.next:
        first = start
    if first >= bounds.next:
        return findings
    wanted = frozenset(wanted)
    with journal.reader(topic, first, partition=0, values=False) as reader:
        for record in _until(reader, bounds.next):
            _note(findings, record, producer, wanted)
    return findings


def _until(reader: Reader, end: int) -> Iterator[Record]:
    """Yield records up to offset `end`, which one of them must reach."""
    patience = time.monotonic() + _PATIENCE_S
    while time.monotonic() < patience:
        records = _poll(reader)
        for record in records:
            if record.offset < end:
                yield record
            if record.offset >= end - 1:
                return
        if records:
            patience = time.monotonic() + _PATIENCE_S
    raise JournalUnavailable("the journal's end was not reached in time; look again later")


def _poll(reader: Reader) -> Sequence[Record]:
    try:
        return reader.poll(_POLL_S)
    except OffsetOutOfRange as error:  # retention went by while we read
        raise JournalUnavailable("the log was cut while it was searched; look again") from error


def _note(findings: Findings, record: Record, producer: str, wanted: frozenset[str]) -> None:
    package_id = record.headers.get(PACKAGE_ID_HEADER, b"").decode("utf-8", "replace")
    if package_id in wanted:
        findings.offsets.setdefault(package_id, record.offset)
    try:
        entry = decode_entry(record.headers)
    except Undecodable:
        return  # not ours: what we append can be read
    if entry.producer == producer:
        findings.highest = max(findings.highest, (entry.epoch, entry.sequence))
