"""Looking for this producer's packages in the journal, before anything is appended again (R26)."""

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from packhorse.messaging import numbered
from packhorse.messaging.api import Edge, Journal, Record
from packhorse.messaging.ranges import read_range
from packhorse.wire.package_codec import PACKAGE_ID_HEADER, decode_entry
from packhorse.wire.record import Undecodable
from packhorse_services.publisher import producers
from packhorse_services.publisher.slot_state import Number

logger = logging.getLogger(__name__)

MOST_SOURCES = 10_000
_BEAT_S = 10.0


@dataclass
class Findings:
    """What the journal holds of one producer, from some offset to its end."""

    end: int
    """The offset that the next record will get."""
    offsets: dict[str, int] = field(default_factory=dict)
    """Where the wanted packages are; the first place of one that is there twice."""
    highest: Number = (0, 0)
    sources: dict[str, numbered.Number] = field(default_factory=dict)
    """Of each replayable source the highest epoch and sequence; the one last seen comes last."""


def search(
    journal: Journal,
    topic: str,
    start: int | Edge,
    producer: str | None,
    wanted: Collection[str],
    *,
    beat: Callable[[], None],
    sources: int = MOST_SOURCES,
) -> Findings:
    """Read headers from `start` to what is the end now; from the oldest if `start` is gone.

    `producer` is the author whose numbers and sources are noted; None takes those of all.
    Of more than `sources` replayable sources those that have published last are kept.
    `beat` is called every few seconds of a long reading. Raises `JournalUnavailable` when the
    end is not reached: then nothing is known.
    """
    bounds = journal.bounds(topic, after_appends=True)
    first = bounds.oldest
    if isinstance(start, int) and bounds.oldest <= start <= bounds.next:
        first = start
    findings = Findings(bounds.next)
    wanted = frozenset(wanted)
    beaten = time.monotonic()
    for record in read_range(journal, topic, first, bounds.next):
        _note(findings, record, producer, wanted)
        if len(findings.sources) > sources:
            del findings.sources[next(iter(findings.sources))]
        if time.monotonic() >= beaten + _BEAT_S:
            beat()
            beaten = time.monotonic()
    return findings


def _note(findings: Findings, record: Record, producer: str | None, wanted: frozenset[str]) -> None:
    package_id = record.headers.get(PACKAGE_ID_HEADER, b"").decode("utf-8", "replace")
    if package_id in wanted:
        findings.offsets.setdefault(package_id, record.offset)
    try:
        entry = decode_entry(record.headers)
    except Undecodable:
        return  # not ours: what we append can be read
    if producer in (entry.producer, None):
        _note_source(findings, record)
        if 0 <= entry.epoch <= numbered.LARGEST and 0 <= entry.sequence <= numbered.LARGEST:
            findings.highest = max(findings.highest, (entry.epoch, entry.sequence))
        else:
            logger.warning(
                "a package has a number that nobody gives", extra={"offset": record.offset}
            )


def _note_source(findings: Findings, record: Record) -> None:
    number = numbered.number_of(record.headers)
    if number is None or not producers.is_qualified(number.producer):
        return
    known = findings.sources.pop(number.producer, number)
    epoch, sequence = max(known.epoch, number.epoch), max(known.sequence, number.sequence)
    findings.sources[number.producer] = numbered.Number(number.producer, epoch, sequence)
