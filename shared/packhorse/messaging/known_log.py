"""What a topic partition holds of each producer: from a snapshot, and the records since.

An empty poll is no proof of the log's end, so the log's bounds are asked for first and then read
to. Who reads and appends at once sees its own records again, which changes nothing.
"""

import logging
from dataclasses import dataclass

from packhorse.messaging.api import Bounds, Journal
from packhorse.messaging.deduplication import Deduplication, DeduplicationSnapshot, SnapshotStore
from packhorse.messaging.numbered import Number, number_of
from packhorse.messaging.reading import read_range

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """How much is remembered, and for how long."""

    producers: int = 10_000
    idle_ms: int = 30 * 24 * 3600 * 1000
    """A producer that was not used for so long is forgotten when a snapshot is taken."""


DEFAULT_LIMITS = MemoryLimits()


@dataclass(frozen=True, slots=True)
class KnownPartition:
    """The partition of `key` in a topic, and the name of its snapshots."""

    topic: str
    key: str | None
    snapshots: str


class KnownLog:
    """The state of one partition and the position up to which it was read; used by one thread.

    Every method but `note` raises a `Transient` when the journal or the store is away, and
    `TopicMissing`; nothing is lost then.
    """

    def __init__(
        self,
        journal: Journal,
        place: KnownPartition,
        snapshots: SnapshotStore,
        limits: MemoryLimits,
    ) -> None:
        self._journal, self._place = journal, place
        self._snapshots, self._limits = snapshots, limits
        self._recovered, self._journal_id = False, ""
        self._partition = self._position = 0
        self.state = Deduplication(limits.producers)
        self.doubted: set[str] = set()
        """Producers with a message of which nobody knows whether it is in the log."""
        self.unsaved = 0
        """Records that a restart would have to replay, as far as we know."""

    def recover(self) -> None:
        """Begin with the snapshot if it is of this journal, and with what the log has since.

        Does nothing when that was done before. A snapshot from before the log's oldest record
        keeps its sequences, and the log is replayed from there.
        """
        if not self._recovered:
            self._recover()

    def _recover(self) -> None:
        self._recovered = False
        self._journal_id = self._journal.identity(self._place.topic)
        if self._place.key is not None:
            self._partition = self._journal.partition_of(self._place.topic, self._place.key)
        bounds = self._bounds(after_appends=True)
        snapshot = self._snapshots.load(self._place.snapshots)
        self.state = Deduplication(self._limits.producers)
        self.doubted.clear()
        self.unsaved, self._position = 0, bounds.oldest
        if snapshot is not None and snapshot.journal_id == self._journal_id:
            self.state.restore(snapshot.state)
            self._position = snapshot.position
        self._read_to(bounds)
        self._recovered = True

    def catch_up(self) -> dict[Number, int]:
        """Take in what the log has beyond our position; returns where doubted messages are.

        Afterwards nothing is in doubt: what was pushed and is not in the log will not be. To be
        called with nothing of ours on its way. A topic that was created anew begins anew.
        """
        bounds = self._bounds(after_appends=bool(self.doubted))
        if not bounds.oldest <= self._position <= bounds.next and self._is_another_topic():
            self._recover()
            return {}
        if self._position < bounds.oldest:
            self._learn_from_snapshot()
        found = self._read_to(bounds)
        for producer in self.doubted:
            self.state.reset(producer)
        self.doubted.clear()
        return found

    def _learn_from_snapshot(self) -> None:
        """Take in what another owner of our names has saved of records that the log forgot."""
        snapshot = self._snapshots.load(self._place.snapshots)
        if snapshot is not None and snapshot.journal_id == self._journal_id:
            for name, kept in snapshot.state.producers.items():
                self.state.persisted(name, kept.sequence, kept.epoch)

    def note(self, number: Number, offset: int) -> None:
        """Take in a message that the journal has just confirmed."""
        self.state.persisted(number.producer, number.sequence, number.epoch)
        self.unsaved += 1
        if offset == self._position:  # nobody else's record lies between
            self._position += 1

    def save(self) -> None:
        """Forget idle producers, and keep what is known up to the log's present end."""
        if self._is_another_topic():
            self._recover()
        self.catch_up()
        forgotten = self.state.expire(self._snapshots.now_ms(), self._limits.idle_ms)
        if forgotten:
            logger.info("idle producers were forgotten", extra={"producers": len(forgotten)})
        snapshot = DeduplicationSnapshot(self._journal_id, self._position, self.state.snapshot())
        self._snapshots.save(self._place.snapshots, snapshot)
        self.unsaved = 0

    def _bounds(self, *, after_appends: bool) -> Bounds:
        """Return the log's end; what is not below it may be appended again only `after_appends`."""
        place = self._place
        return self._journal.bounds(place.topic, self._partition, after_appends=after_appends)

    def _is_another_topic(self) -> bool:
        return self._journal.identity(self._place.topic) != self._journal_id

    def _read_to(self, bounds: Bounds) -> dict[Number, int]:
        if not bounds.oldest <= self._position <= bounds.next:
            extra = {"position": self._position, "oldest": bounds.oldest, "next": bounds.next}
            logger.warning("the log was cut; it is read from its oldest record", extra=extra)
            self._position = bounds.oldest
        found: dict[Number, int] = {}
        where = (self._place.topic, self._position, bounds.next, self._partition)
        for record in read_range(self._journal, *where):
            number = number_of(record.headers)
            if number is not None:
                self.state.persisted(number.producer, number.sequence, number.epoch)
                if number.producer in self.doubted:
                    found.setdefault(number, record.offset)
            self._position = record.offset + 1
            self.unsaved += 1
        self._position = bounds.next
        return found
