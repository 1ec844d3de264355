"""Whether the topic is the log that we know, and looking there for our packages (R26).

Both come before anything is appended again.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from packhorse.messaging import numbered
from packhorse.messaging.api import Journal, LogEnd, Record
from packhorse.messaging.reading import read_range
from packhorse.wire.package_codec import PACKAGE_ID_HEADER, decode_entry
from packhorse.wire.record import Undecodable
from packhorse_services.publisher.outbox import producers
from packhorse_services.publisher.outbox.append_state import Number

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

    def grown(self, read: Callable[[int], "Findings"]) -> Mapping[str, int]:
        """Add what is read from the end on, and return all places."""
        behind = read(self.end)
        self.end = behind.end
        for package_id, offset in behind.offsets.items():
            self.offsets.setdefault(package_id, offset)
        return self.offsets


@dataclass(frozen=True)
class Sought:
    """What is to be found."""

    producer: str | None = None
    """The author whose numbers and sources are noted; None: those of all."""
    package_ids: frozenset[str] = frozenset()
    sources: int = MOST_SOURCES
    """Of more replayable sources those that have published last are kept."""


def search(
    journal: Journal,
    topic: str,
    start: int | LogEnd,
    sought: Sought,
    *,
    beat: Callable[[], None],
    beat_s: float = _BEAT_S,
) -> Findings:
    """Read headers from `start` to what is the end now; from the oldest if `start` is gone.

    `beat` is called every `beat_s` seconds of a long reading. Raises `JournalUnavailable` when the
    end is not reached: then nothing is known.
    """
    bounds = journal.bounds(topic, after_appends=True)
    first = bounds.oldest
    if isinstance(start, int) and bounds.oldest <= start <= bounds.next:
        first = start
    findings = Findings(bounds.next)
    beaten = time.monotonic()
    for record in read_range(journal, topic, first, bounds.next):
        _note(findings, record, sought)
        if len(findings.sources) > sought.sources:
            del findings.sources[next(iter(findings.sources))]
        if time.monotonic() >= beaten + beat_s:
            beat()
            beaten = time.monotonic()
    return findings


def _note(findings: Findings, record: Record, sought: Sought) -> None:
    package_id = record.headers.get(PACKAGE_ID_HEADER, b"").decode("utf-8", "replace")
    if package_id in sought.package_ids:
        findings.offsets.setdefault(package_id, record.offset)
    try:
        entry = decode_entry(record.headers)
    except Undecodable:
        return  # not ours: what we append can be read
    if sought.producer in (entry.producer, None):
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


_ASK_S = 5.0


class LogWatch:
    """Asks for the log's identity, though not at each append; used by holders of the append lock.

    A log that is made anew begins at 0, so an offset that is not above the last one asks at once.
    """

    def __init__(self, journal: Journal, topic: str) -> None:
        self._journal, self._topic = journal, topic
        self._newest, self._requested_at = -1, -_ASK_S

    def identity(self) -> str:
        """Return the log's identity. Raises what `Journal.identity` raises."""
        return self._journal.identity(self._topic)

    def is_suspicious(self, oldest: int, newest: int) -> bool:
        """Return whether to ask for the identity, now that records have got offsets from..to."""
        now, before = time.monotonic(), self._newest
        self._newest = newest
        if oldest > before and now < self._requested_at + _ASK_S:
            return False
        self._requested_at = now
        return True
