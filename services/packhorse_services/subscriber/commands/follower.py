"""Follows the command topic, and keeps in memory what the database says of commands (R19)."""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import psycopg
from psycopg import Connection
from psycopg.errors import LockNotAvailable

from packhorse.clock import Clock, SystemClock
from packhorse.errors import PackhorseError, Transient
from packhorse.messaging.api import Journal, OffsetOutOfRange, Reader, Record
from packhorse.messaging.reading import Polled
from packhorse.runtime.lifecycle import Worker, WorkerComponent
from packhorse.runtime.outage import Outage
from packhorse.wire.command_codec import decode_command
from packhorse.wire.messages import Command
from packhorse.wire.record import Undecodable
from packhorse_services.subscriber.commands import control, ledger
from packhorse_services.subscriber.commands.clear_commands import ClearCommands, PendingClear
from packhorse_services.subscriber.commands.control import SubscriptionControl
from packhorse_services.subscriber.commands.handler import (
    CommandHandler,
    check_lease,
    finish_what_is_passed,
)
from packhorse_services.subscriber.journal.failures import printable
from packhorse_services.subscriber.lease import Lease

logger = logging.getLogger(__name__)

_POLL_S = 5.0
"""How often it looks whether the lease is another's, which is why a command is not applied then."""
_PAUSE_S = 1.0
_CATCH_UP_S = 10.0
_LEASE_POLL_S = 1.0
_SUBSCRIPTIONS_BUSY_S = 0.1
_ID_CHARACTERS = 200


class CommandsBehind(Transient):
    """The command topic could not be read to its end in time; imports wait for it."""


def _nobody() -> None:
    pass


@dataclass(frozen=True)
class CommandListeners:
    """Who hears what a command changes, once it is stored."""

    clears: ClearCommands
    control: SubscriptionControl
    on_decision: Callable[[], None] = _nobody


class CommandFollower(WorkerComponent):
    """A component that reads this subscriber's partition of the command topic.

    Only the worker that has the lease applies commands; another reads on when it takes over. A
    database that has never followed the topic begins at its end: what is older was meant for the
    one before it. After that nothing is missed, however long the subscriber was away.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        command_topic: str,
        handler: CommandHandler,
        lease: Lease,
        listeners: CommandListeners,
        clock: Clock | None = None,
    ) -> None:
        self._connect, self._topic = connect, command_topic
        self._handler, self._lease, self._listeners = handler, lease, listeners
        self._clock = clock or SystemClock()
        self._changed = threading.Condition()
        self._next: int | None = None
        self._epoch = -1
        self._wake = threading.Event()
        self._polled = Polled()
        self._outage = Outage(
            logger, "commands can't be followed now", "commands are followed again", self._clock
        )
        self._worker = Worker("commands", self._run, wake=self._end_waits)

    @property
    def _journal(self) -> Journal:
        return self._handler.journal

    def catch_up(self, epoch: int) -> None:
        """Return when every command that is in the log now is in force (SLING-10112).

        Raises `CommandsBehind`, also when that was so only before `epoch`, `JournalUnavailable`, or
        `TopicMissing` for either topic that is needed for it.
        """
        self._journal.identity(self._handler.package_topic)
        end = self._journal.bounds(self._topic, self._partition()).next
        if self._epoch != epoch:
            self._polled.wake()
        with self._changed:
            read = self._changed.wait_for(
                lambda: self._epoch >= epoch and self._next is not None and self._next >= end,
                _CATCH_UP_S,
            )
        if not read:
            raise CommandsBehind("the command topic is not read to its end yet")

    def _end_waits(self) -> None:
        self._wake.set()
        self._polled.wake()

    def _partition(self) -> int:
        return self._journal.partition_of(self._topic, self._handler.subscriber)

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            epoch = self._lease.wait(_LEASE_POLL_S)
            if epoch is None:
                continue
            try:
                self._follow(epoch, stopping)
            except OffsetOutOfRange as error:
                logger.warning("commands have left the log", extra={"error": str(error)})
            except (PackhorseError, psycopg.Error) as error:
                self._outage.failed(error)
                self._clock.wait(self._wake, _PAUSE_S)
            finally:
                self._advance(-1, None)

    def _follow(self, epoch: int, stopping: threading.Event) -> None:
        """Follow the topic; commands are rare, so no connection is kept between them."""
        partition = self._partition()
        with self._connect() as connection:
            opened = self._open(connection, epoch, partition)
        with self._polled.polling(opened) as reader:
            self._advance(epoch, reader.position(partition))
            while not stopping.is_set() and self._lease.epoch() == epoch:
                records = reader.poll(_POLL_S)
                if records:
                    with self._connect() as connection:
                        epoch = self._take(connection, epoch, records)
                self._advance(epoch, reader.position(partition))
                self._outage.ended()

    def _open(self, connection: Connection, epoch: int, partition: int) -> Reader:
        identity = self._journal.identity(self._topic)
        packages = self._journal.identity(self._handler.package_topic)
        bounds = self._journal.bounds(self._topic, partition)
        subscriber = self._handler.subscriber
        with connection.transaction():
            check_lease(connection, epoch)
            finish_what_is_passed(connection, subscriber)
            ledger.abandon_clears(
                connection, subscriber, "the journal was created anew", journal_id=packages
            )
            row = connection.execute(
                """
                SELECT journal_id, log_offset FROM bookkeeping.command_position
                WHERE subscriber = %s
                """,
                (subscriber,),
            ).fetchone()
            if row is None:
                self._store(connection, identity, bounds.next - 1)
        self._sync(connection)
        if row is None:
            start = bounds.next
        elif row[0] != identity or not bounds.oldest <= row[1] + 1 <= bounds.next:
            start = bounds.oldest
        else:
            start = row[1] + 1
        return self._journal.reader(self._topic, start, partition=partition)

    def _sync(self, connection: Connection) -> None:
        """Put in force what the database says."""
        rows = connection.execute(
            """
            SELECT publisher_agent, journal_id, up_to, command_id
            FROM bookkeeping.clear_command WHERE subscriber = %s
            """,
            (self._handler.subscriber,),
        )
        self._listeners.clears.take(
            (agent, journal_id, PendingClear(up_to, command_id))
            for agent, journal_id, up_to, command_id in rows.fetchall()
        )
        self._listeners.control.take(control.load(connection))
        self._listeners.on_decision()

    def _take(self, connection: Connection, epoch: int, records: Sequence[Record]) -> int:
        """Apply what is for this subscriber; return the epoch, which a reset raises."""
        identity = self._journal.identity(self._topic)
        applied = False
        for record in records:
            command = self._read(record)
            if command is None:
                continue
            read = partial(self._store, connection, identity, record.offset)
            epoch = self._apply(connection, command, epoch, read)
            applied = True
        self._store(connection, identity, records[-1].offset)
        if applied:
            self._sync(connection)
        return epoch

    def _apply(
        self, connection: Connection, command: Command, epoch: int, read: Callable[[], None]
    ) -> int:
        """Apply a command, as soon as subscriptions that import let a reset in.

        What it read of the log stays.
        """
        prepared = self._handler.prepare(connection, command, partial(self._check, epoch))
        while True:
            try:
                after = self._handler.apply(connection, command, epoch, prepared, read)
            except LockNotAvailable:
                if self._wake.wait(_SUBSCRIPTIONS_BUSY_S) or self._lease.epoch() != epoch:
                    raise
            else:
                if after != epoch:
                    self._lease.adopt(after)
                return after

    def _check(self, epoch: int) -> None:
        if self._wake.is_set() or self._lease.epoch() != epoch:
            raise CommandsBehind("a command was given up, for this worker ends or lost the lease")

    def _read(self, record: Record) -> Command | None:
        try:
            command = decode_command(record.headers, record.value)
        except Undecodable as error:
            logger.warning(
                "an unreadable command is passed over",
                extra={"offset": record.offset, "error": str(error)},
            )
            return None
        if command.subscriber != self._handler.subscriber:
            return None
        return replace(
            command,
            command_id=printable(command.command_id, _ID_CHARACTERS) or f"offset-{record.offset}",
            publisher_agent=printable(command.publisher_agent, _ID_CHARACTERS),
            user=printable(command.user, _ID_CHARACTERS),
        )

    def _store(self, connection: Connection, identity: str, offset: int) -> None:
        connection.execute(
            """
            INSERT INTO bookkeeping.command_position (subscriber, journal_id, log_offset)
            VALUES (%s, %s, %s) ON CONFLICT (subscriber) DO UPDATE
            SET journal_id = excluded.journal_id, log_offset = excluded.log_offset
            """,
            (self._handler.subscriber, identity, offset),
        )

    def _advance(self, epoch: int, next_offset: int | None) -> None:
        with self._changed:
            self._epoch, self._next = epoch, next_offset
            self._changed.notify_all()
