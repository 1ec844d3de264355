"""What tests of deduplication need: snapshots in memory, and a journal that fails in a batch."""

import random
from concurrent.futures import Future
from typing import Any

from packhorse.messaging.api import (
    Appended,
    AppendUnknown,
    Bounds,
    Journal,
    JournalUnavailable,
    NotAppended,
    Outgoing,
)
from packhorse.messaging.deduplication import DeduplicationSnapshot
from packhorse.messaging.numbered import Number, Numbered, number_of
from packhorse.messaging.reading import read_range


class MemorySnapshots:
    """A `SnapshotStore` with a clock that tests move; it outlives the log that uses it."""

    def __init__(self) -> None:
        self.kept: dict[str, DeduplicationSnapshot] = {}
        self.time_ms = 0

    def load(self, name: str) -> DeduplicationSnapshot | None:
        return self.kept.get(name)

    def save(self, name: str, snapshot: DeduplicationSnapshot) -> None:
        kept = self.kept.get(name)
        behind = kept is not None and kept.position > snapshot.position
        if kept is None or kept.journal_id != snapshot.journal_id or not behind:
            self.kept[name] = snapshot

    def now_ms(self) -> int:
        return self.time_ms


class FailingJournal:
    """A journal that fails from one append on, until it is healed: as real ones do in a batch."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.heal()

    def heal(self) -> None:
        """Take and confirm everything again."""
        self._good, self._error, self._written = -1, NotAppended("unused"), False

    def fail_after(self, good: int, error: Any, *, written: bool) -> None:
        """Confirm `good` more appends; the one after them fails with `error`, `written` or not.

        What comes behind that one is `NotAppended`.
        """
        self._good, self._error, self._written = good, error, written

    def append(self, topic: str, record: Outgoing) -> Future[Appended]:
        if self._good < 0:
            return self._journal.append(topic, record)
        if self._good > 0:
            self._good -= 1
            return self._journal.append(topic, record)
        if self._written:
            self._journal.append(topic, record).result(120)
        failed: Future[Appended] = Future()
        failed.set_exception(self._error)
        self._error, self._written = NotAppended("one before it failed"), False
        return failed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


class BlindJournal(FailingJournal):
    """A journal that also can't be read after its bounds were read `blind_after` times."""

    blind_after: int | None = None

    def heal(self) -> None:
        """Take, confirm and answer everything again."""
        super().heal()
        self.blind_after = None

    def bounds(self, topic: str, partition: int = 0, *, after_appends: bool = False) -> Bounds:
        if self.blind_after == 0:
            raise JournalUnavailable("the journal is away")
        if self.blind_after is not None:
            self.blind_after -= 1
        return self._journal.bounds(topic, partition, after_appends=after_appends)


UNKNOWN = AppendUnknown("the acknowledgement was lost")


def numbered(producer: str, sequence: int, epoch: int = 1) -> Numbered:
    """Return a small message whose body is its number."""
    body = f"{producer}:{epoch}:{sequence}:{random.random()}".encode()
    return Numbered(producer, epoch, sequence, Outgoing(body))


def numbers_in(journal: Journal, topic: str) -> list[Number]:
    """Return the numbers of all records in the log, in its order."""
    bounds = journal.bounds(topic)
    found = (
        number_of(record.headers)
        for record in read_range(journal, topic, bounds.oldest, bounds.next)
    )
    return [number for number in found if number is not None]
