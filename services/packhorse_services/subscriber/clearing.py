"""Follows the command topic for an editable subscriber, and keeps what it is told (R19)."""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import psycopg
from psycopg import Connection

from packhorse.clock import Clock, SystemClock
from packhorse.errors import PackhorseError, Transient
from packhorse.messaging.api import Journal, OffsetOutOfRange, Reader, Record
from packhorse.runtime.lifecycle import Worker
from packhorse.wire.command_codec import decode_command
from packhorse.wire.messages import ClearCommand
from packhorse.wire.record import Undecodable
from packhorse.wire.topics import Topics
from packhorse_services.subscriber.clearances import Clearance, Clearances
from packhorse_services.subscriber.failures import printable

logger = logging.getLogger(__name__)

_POLL_S = 0.25
_PAUSE_S = 1.0
_CATCH_UP_S = 10.0
_ID_CHARACTERS = 200


class CommandsBehind(Transient):
    """The command topic could not be read to its end in time; imports wait for it."""


class CommandFollower:
    """A component that reads this subscriber's partition of the command topic.

    A database that has never followed it begins at the end: what is older was meant for the one
    before it. After that nothing is missed, however long the subscriber was away.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        journal: Journal,
        topics: Topics,
        *,
        subscriber: str,
        clearances: Clearances,
        clock: Clock | None = None,
    ) -> None:
        self._connect, self._journal, self._topics = connect, journal, topics
        self._subscriber, self._clearances = subscriber, clearances
        self._clock = clock or SystemClock()
        self._changed = threading.Condition()
        self._next: int | None = None
        self._wake = threading.Event()
        self._worker = Worker("commands", self._run)

    def start(self) -> None:
        """Begin to follow."""
        self._worker.start()

    def stop(self, timeout: float) -> None:
        """End."""
        self._worker.ask_to_end()
        self._wake.set()
        self._worker.stop(timeout)

    def failure(self) -> BaseException | None:
        """Return what ended the thread."""
        return self._worker.failure()

    def catch_up(self) -> None:
        """Return when every command that is in the log now is in force (SLING-10112).

        Raises `CommandsBehind` or `JournalUnavailable`.
        """
        end = self._journal.bounds(self._topics.command, self._partition()).next
        with self._changed:
            read = self._changed.wait_for(
                lambda: self._next is not None and self._next >= end, _CATCH_UP_S
            )
        if not read:
            raise CommandsBehind("the command topic is not read to its end yet")

    def _partition(self) -> int:
        return self._journal.partition_of(self._topics.command, self._subscriber)

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            try:
                with self._connect() as connection:
                    self._follow(connection, stopping)
            except OffsetOutOfRange as error:
                logger.warning("commands have left the log", extra={"error": str(error)})
                self._restart()
            except (PackhorseError, psycopg.Error):
                logger.warning("the command topic can't be followed now", exc_info=True)
                self._clock.wait(self._wake, _PAUSE_S)

    def _follow(self, connection: Connection, stopping: threading.Event) -> None:
        self._load(connection)
        partition = self._partition()
        with self._open(connection, partition) as reader:
            while not stopping.is_set():
                records = reader.poll(_POLL_S)
                if records:
                    self._take(connection, records)
                self._advance(reader.position(partition))

    def _open(self, connection: Connection, partition: int) -> Reader:
        topic = self._topics.command
        identity = self._journal.identity(topic)
        bounds = self._journal.bounds(topic, partition)
        row = connection.execute(
            """
            SELECT journal_id, log_offset FROM bookkeeping.command_position WHERE subscriber = %s
            """,
            (self._subscriber,),
        ).fetchone()
        if row is None:
            start = bounds.next
            self._store(connection, identity, start - 1, [])
        elif row[0] != identity or not bounds.oldest <= row[1] + 1 <= bounds.next:
            start = bounds.oldest
        else:
            start = row[1] + 1
        self._advance(start)
        return self._journal.reader(topic, start, partition=partition)

    def _load(self, connection: Connection) -> None:
        connection.execute(
            """
            DELETE FROM bookkeeping.clear_command USING bookkeeping.position
            WHERE clear_command.publisher_agent = position.publisher_agent
            AND clear_command.journal_id = position.journal_id AND up_to <= log_offset
            """
        )
        rows = connection.execute(
            """
            SELECT publisher_agent, journal_id, up_to, command_id
            FROM bookkeeping.clear_command WHERE subscriber = %s
            """,
            (self._subscriber,),
        )
        for agent, journal_id, up_to, command_id in rows.fetchall():
            self._clearances.add(agent, journal_id, Clearance(up_to, command_id))

    def _take(self, connection: Connection, records: Sequence[Record]) -> None:
        commands = [command for record in records if (command := self._read(record))]
        packages = self._journal.identity(self._topics.package) if commands else ""
        end = self._journal.bounds(self._topics.package).next if commands else 0
        clearances = [
            (
                command.publisher_agent,
                packages,
                Clearance(min(command.offset, end - 1), command.command_id),
            )
            for command in commands
        ]
        identity = self._journal.identity(self._topics.command)
        self._store(connection, identity, records[-1].offset, clearances)
        for agent, journal_id, clearance in clearances:
            logger.info("clear command", extra={"agent": agent, "up_to": clearance.up_to})
            self._clearances.add(agent, journal_id, clearance)

    def _read(self, record: Record) -> ClearCommand | None:
        try:
            command = decode_command(record.headers, record.value)
        except Undecodable as error:
            logger.warning(
                "an unreadable command is passed over",
                extra={"offset": record.offset, "error": str(error)},
            )
            return None
        if not isinstance(command, ClearCommand) or command.subscriber != self._subscriber:
            return None
        command_id = printable(command.command_id, _ID_CHARACTERS) or f"offset-{record.offset}"
        agent = printable(command.publisher_agent, _ID_CHARACTERS)
        return replace(command, command_id=command_id, publisher_agent=agent)

    def _store(
        self,
        connection: Connection,
        identity: str,
        offset: int,
        clearances: Sequence[tuple[str, str, Clearance]],
    ) -> None:
        with connection.transaction():
            for agent, journal_id, clearance in clearances:
                connection.execute(
                    """
                    INSERT INTO bookkeeping.clear_command
                        (subscriber, command_id, publisher_agent, journal_id, up_to)
                    VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING
                    """,
                    (self._subscriber, clearance.command_id, agent, journal_id, clearance.up_to),
                )
            connection.execute(
                """
                INSERT INTO bookkeeping.command_position (subscriber, journal_id, log_offset)
                VALUES (%s, %s, %s) ON CONFLICT (subscriber) DO UPDATE
                SET journal_id = excluded.journal_id, log_offset = excluded.log_offset
                """,
                (self._subscriber, identity, offset),
            )

    def _advance(self, next_offset: int) -> None:
        with self._changed:
            self._next = next_offset
            self._changed.notify_all()

    def _restart(self) -> None:
        with self._changed:
            self._next = None
