"""The event topic: one CloudEvent a package, also when a try before this one died (R5)."""

import hashlib
import logging
from collections.abc import Callable, Sequence

from packhorse.errors import PackhorseError
from packhorse.messaging.api import Journal, Outgoing, RecordTooLarge
from packhorse.messaging.deduplicated import DeduplicatedLog, SequenceOvertaken
from packhorse.messaging.deduplication import ProducerExpired, ProducerFenced, SnapshotStore
from packhorse.messaging.numbered import MAX_NAME, Numbered
from packhorse.runtime.metrics import PUBLISHER_EVENTS_LOST

logger = logging.getLogger(__name__)

_SNAPSHOT_EVERY = 1_000

Event = tuple[int, Outgoing]
"""Offset of the package, and its event."""


class EventLog:
    """Appends one agent's events in the order of their packages, each once. Of one thread.

    `next_epoch` gives an epoch that nobody had, above the one that it is told if it can: a
    database that was restored gives lower ones than those that are in the log.

    The packages' offsets are the sequence of a producer; the topic of packages is part of its
    name, since another log counts from the beginning.
    """

    def __init__(
        self,
        journal: Journal,
        topic: str,
        agent: str,
        snapshots: SnapshotStore,
        next_epoch: Callable[[int], int],
    ) -> None:
        self._journal, self._topic, self._agent = journal, topic, agent
        self._snapshots, self._next_epoch = snapshots, next_epoch
        self._log: DeduplicatedLog | None = None
        self._epoch = self._epoch_in_log = 0

    def append(self, journal_id: str, events: Sequence[Event]) -> None:
        """Append those events that are not there yet, in order.

        Raises a `PackhorseError` unless all of them are there; then try the same again. An event
        that never will be there is logged and counted as lost: a later one is in the log already,
        or it is too large.
        """
        log = self._log or self._opened()
        producer = _producer(self._agent, journal_id)
        messages = [Numbered(producer, self._epoch, offset, record) for offset, record in events]
        failures: list[PackhorseError] = []
        for message, outcome in zip(messages, log.append_all(messages), strict=True):
            if isinstance(outcome, RecordTooLarge | SequenceOvertaken):
                PUBLISHER_EVENTS_LOST.inc()
                logger.error("an event is lost", extra={"offset": message.sequence})
            elif isinstance(outcome, PackhorseError):
                failures.append(outcome)
        if failures:
            self._fail(failures[0])
        if log.unsaved >= _SNAPSHOT_EVERY:
            log.take_snapshot()

    def _fail(self, failure: PackhorseError) -> None:
        self.close()
        if isinstance(failure, ProducerFenced | ProducerExpired):
            self._epoch_in_log = max(self._epoch_in_log, failure.epoch)
        raise failure

    def close(self) -> None:
        """Forget what is known of the topic; the next `append` begins with the snapshot."""
        self._log = None

    def _opened(self) -> DeduplicatedLog:
        self._epoch = self._next_epoch(self._epoch_in_log)
        self._log = _known(self._journal, self._topic, self._agent, self._snapshots)
        return self._log


def snapshot_events(journal: Journal, topic: str, agent: str, snapshots: SnapshotStore) -> None:
    """Keep what the event topic holds of an agent, so that whoever comes next reads little.

    Any replica may do it at any time: it reads the topic itself, from the last snapshot on.
    Raises a `Transient` when the journal or the store is away; nothing is lost then.
    """
    _known(journal, topic, agent, snapshots).take_snapshot()


def _known(journal: Journal, topic: str, agent: str, snapshots: SnapshotStore) -> DeduplicatedLog:
    return DeduplicatedLog(journal, topic, snapshots, name=f"{topic}/{agent}", key=agent)


def _producer(agent: str, journal_id: str) -> str:
    """Return the producer's name: another one for another log, however long the names are."""
    name = f"events/{agent}/{journal_id}"
    if len(name) <= MAX_NAME:
        return name
    return f"events/sha256/{hashlib.sha256(name.encode()).hexdigest()}"
