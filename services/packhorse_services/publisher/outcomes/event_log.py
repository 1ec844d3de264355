"""The event topic: one CloudEvent a package, also when a try before this one died (R5)."""

import logging
from collections.abc import Callable, Sequence

from packhorse.errors import PackhorseError
from packhorse.messaging.api import Journal, Outgoing, RecordTooLarge
from packhorse.messaging.deduplicated import DeduplicatedLog, SequenceOvertaken
from packhorse.messaging.deduplication import SnapshotStore
from packhorse.messaging.numbered import Numbered

logger = logging.getLogger(__name__)

_SNAPSHOT_EVERY = 1_000

Event = tuple[int, Outgoing]
"""Offset of the package, and its event."""


class EventLog:
    """Appends one agent's events in the order of their packages, each once. Of one thread.

    The packages' offsets are the sequence of a producer; the topic of packages is part of its
    name, since another log counts from the beginning.
    """

    def __init__(
        self,
        journal: Journal,
        topic: str,
        agent: str,
        snapshots: SnapshotStore,
        next_epoch: Callable[[], int],
    ) -> None:
        self._journal, self._topic, self._agent = journal, topic, agent
        self._snapshots, self._next_epoch = snapshots, next_epoch
        self._log: DeduplicatedLog | None = None
        self._epoch = 0

    def append(self, journal_id: str, events: Sequence[Event]) -> None:
        """Append those events that are not there yet, in order.

        Raises a `PackhorseError` unless all of them are there; then try the same again.
        """
        log = self._log or self._opened()
        producer = f"events/{self._agent}/{journal_id}"[:255]
        messages = [Numbered(producer, self._epoch, offset, record) for offset, record in events]
        for message, outcome in zip(messages, log.append_all(messages), strict=True):
            if isinstance(outcome, RecordTooLarge | SequenceOvertaken):
                logger.error("an event can't be told", extra={"offset": message.sequence})
            elif isinstance(outcome, PackhorseError):
                self.close()
                raise outcome
        if log.unsaved >= _SNAPSHOT_EVERY:
            log.take_snapshot()

    def close(self) -> None:
        """Forget what is known of the topic; the next `append` begins with the snapshot."""
        self._log = None

    def _opened(self) -> DeduplicatedLog:
        self._epoch = self._next_epoch()
        self._log = DeduplicatedLog(
            *(self._journal, self._topic, self._snapshots),
            name=f"{self._topic}/{self._agent}",
            key=self._agent,
        )
        return self._log
