"""The event topic: one CloudEvent a package, also when a try before this one died (R5).

What was appended is remembered by snapshots in the author's database.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.types.json import Jsonb

from packhorse.db.pool import Lender
from packhorse.db.rows import now_ms
from packhorse.db.transactions import writing
from packhorse.errors import PackhorseError, Transient
from packhorse.messaging.api import Journal, Outgoing
from packhorse.messaging.deduplicated import DeduplicatedLog, SequenceOvertaken
from packhorse.messaging.deduplication import (
    DeduplicationSnapshot,
    DeduplicationState,
    ProducerExpired,
    ProducerFenced,
    ProducerState,
    SnapshotStore,
)
from packhorse.messaging.numbered import MAX_NAME, Numbered
from packhorse.runtime.metrics import PUBLISHER_EVENTS_LOST

logger = logging.getLogger(__name__)

_SNAPSHOT_EVERY = 1_000

Event = tuple[int, Outgoing]
"""Offset of the package, and its event."""


class EventAppender:
    """Appends one agent's events in the order of their packages, each once. Of one thread.

    `next_epoch` gives an epoch that nobody had, above the one that it is given if it can: a
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

        Raises a `PackhorseError` unless all of them are there; then try the same again. It is
        `RecordTooLarge` when that won't help until an operator has raised the topic's limit. An
        event that never will be there, since a later one is, is logged and counted as lost.
        """
        log = self._log or self._opened()
        producer = _producer(self._agent, journal_id)
        messages = [Numbered(producer, self._epoch, offset, record) for offset, record in events]
        failures: list[PackhorseError] = []
        for message, outcome in zip(messages, log.append_all(messages), strict=True):
            if isinstance(outcome, SequenceOvertaken):
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


class SnapshotsUnavailable(Transient):
    """The author's database is away, or nobody knows whether it took the snapshot."""


class DatabaseSnapshots:
    """A `SnapshotStore`: one row an owner, written whole; time is the database's (R28)."""

    def __init__(self, pool: Lender) -> None:
        self._pool = pool

    def load(self, name: str) -> DeduplicationSnapshot | None:
        """Return the owner's snapshot. Raises `SnapshotsUnavailable`."""
        with self._bookkeeping() as connection:
            row: Any = connection.execute(
                "SELECT journal_id, position, producers FROM bookkeeping.deduplication_snapshot "
                "WHERE topic = %s",
                (name,),
            ).fetchone()
        return None if row is None else DeduplicationSnapshot(row[0], row[1], _state(row[2]))

    def save(self, name: str, snapshot: DeduplicationSnapshot) -> None:
        """Keep the snapshot, unless one of the same journal is there that reaches further.

        Raises `SnapshotsUnavailable`: then either the old one or this one is kept.
        """
        with self._bookkeeping() as connection:
            connection.execute(
                """
                INSERT INTO bookkeeping.deduplication_snapshot AS kept
                    (topic, journal_id, position, producers) VALUES (%s, %s, %s, %s)
                ON CONFLICT (topic) DO UPDATE SET journal_id = excluded.journal_id,
                    position = excluded.position, producers = excluded.producers,
                    taken_at = now()
                WHERE kept.journal_id <> excluded.journal_id OR kept.position <= excluded.position
                """,
                (name, snapshot.journal_id, snapshot.position, Jsonb(_document(snapshot.state))),
            )

    def now_ms(self) -> int:
        """Return the database's clock. Raises `SnapshotsUnavailable`."""
        with self._bookkeeping() as connection:
            return now_ms(connection)

    @contextmanager
    def _bookkeeping(self) -> Iterator[Connection]:
        try:
            with writing(self._pool.connection) as connection:
                yield connection
        except psycopg.Error as error:
            raise SnapshotsUnavailable(f"the author's database says: {error}") from error


def _document(state: DeduplicationState) -> dict[str, Any]:
    """Return what the column holds: the watermark; epoch, sequence and last use of each name."""
    known = {
        name: [kept.epoch, kept.sequence, kept.used_ms] for name, kept in state.producers.items()
    }
    return {"floor": state.watermark, "known": known}


def _state(document: dict[str, Any]) -> DeduplicationState:
    known = {name: ProducerState(*numbers) for name, numbers in document["known"].items()}
    return DeduplicationState(known, document["floor"])
