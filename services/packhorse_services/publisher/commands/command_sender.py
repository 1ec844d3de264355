"""Brings commands into the journal: in the order of their issue, each at least once (R26).

A command is a committed row before it is appended. One that was appended and not marked is sent
again; its subscriber knows the id and takes it for the repeat that it is.
"""

import logging

from psycopg.errors import LockNotAvailable

from packhorse.clock import Clock
from packhorse.db.pool import Lender
from packhorse.db.transactions import writing
from packhorse.messaging.api import Journal, Outgoing
from packhorse.runtime.changes import ChangeSignal
from packhorse.runtime.periodic import Periodic
from packhorse.runtime.tracing import inject
from packhorse.wire.command_codec import encode_command
from packhorse_services.publisher.commands import command_rows
from packhorse_services.publisher.commands.command_rows import StoredCommand

logger = logging.getLogger(__name__)

_INTERVAL_S = 5.0
_APPEND_TIMEOUT_S = 10.0
_SENDING = 0x636F6D6D  # "comm"


class CommandSender(Periodic):
    """A component; one replica sends at a time, or a resume could overtake its pause.

    What is not sent at its end goes out after the next start.
    """

    def __init__(
        self,
        pool: Lender,
        journal: Journal,
        topic: str,
        agent: str,
        clock: Clock,
    ) -> None:
        self._pool, self._journal, self._topic, self._agent = pool, journal, topic, agent
        super().__init__("commands", _INTERVAL_S, self._round, clock=clock, at_once=True)
        self.rounds = ChangeSignal()
        """Called after every round, also one that failed."""

    def _round(self) -> None:
        try:
            self.send()
        except LockNotAvailable:
            logger.info("another replica is sending commands")
        finally:
            self.rounds.announce()

    def send(self) -> None:
        """Send every command of this agent that is not marked sent, the oldest first.

        Raises what the journal or the database raises; the rest waits, for order is kept.
        """
        while self._send_next():
            pass

    def _send_next(self) -> bool:
        """Return whether there was one. A transaction each: what is marked is locked until then."""
        with writing(self._pool.connection) as connection:
            if command_rows.next_unsent(connection, self._agent) is None:
                return False
            connection.execute(
                "SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (_SENDING, self._agent)
            )
            command = command_rows.next_unsent(connection, self._agent)
            if command is not None:
                self._append(command)
                command_rows.mark_sent(connection, command.command_id)
        return command is not None

    def _append(self, command: StoredCommand) -> None:
        encoded = encode_command(command.message())
        record = Outgoing(encoded.value, {**encoded.headers, **inject()}, key=command.subscriber)
        self._journal.append(self._topic, record).result(_APPEND_TIMEOUT_S)
        logger.info(
            "command sent",
            extra={
                "subscriber": command.subscriber,
                "kind": command.kind,
                "offset": command.log_offset,
                "command_id": command.command_id,
            },
        )
