"""What each command does to the database: one transaction with what it reports (R19, R25)."""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from psycopg import Connection, DataError
from psycopg.errors import ProgramLimitExceeded

from packhorse.errors import Permanent
from packhorse.messaging.api import Journal
from packhorse.wire.messages import (
    ClearCommand,
    Command,
    CommandState,
    ControlCommand,
    DesiredState,
    ResetCommand,
    RetryCommand,
)
from packhorse_services.subscriber.commands import control, ledger, reset
from packhorse_services.subscriber.journal.failures import Fenced, reason

logger = logging.getLogger(__name__)

_UNSTORABLE = (DataError, ProgramLimitExceeded)
"""What the database says of a value that it can't hold: trying again would not help."""


class _Refused(Permanent):
    """The command can't be applied; the text is the reason that its sender gets."""


@dataclass(frozen=True, slots=True)
class PreparedCommand:
    """What the log says to one command: whose it is, where it ends, where a reset leads."""

    journal_id: str
    end: int
    target: reset.ResetTarget | None = None
    """Where a reset leads; None for another command, and while the subscription is not stopped."""
    refusal: str = ""
    """Why the log has no such place for a reset; empty when it has, or was not asked."""


@dataclass(frozen=True, slots=True)
class CommandHandler:
    """Applies the commands of one subscriber, on its database and for its subscriptions."""

    subscriber: str
    agents: Collection[str]
    editable: bool
    journal: Journal
    package_topic: str
    remembers: bool = False
    """Whether ids of imported packages are kept, for a journal with repetitions."""

    def prepare(
        self, connection: Connection, command: Command, check: Callable[[], None] = lambda: None
    ) -> PreparedCommand:
        """Return what the log says to a command, read outside any transaction: it may take long.

        What `check` raises now and then ends it. Raises what journal and database raise.
        """
        identity = self.journal.identity(self.package_topic)
        end = self.journal.bounds(self.package_topic).next
        try:
            target = self._target(connection, command, identity, check)
        except reset.ResetOutsideLog as error:
            return PreparedCommand(identity, end, refusal=str(error))
        return PreparedCommand(identity, end, target)

    def apply(
        self,
        connection: Connection,
        command: Command,
        epoch: int,
        prepared: PreparedCommand,
        also: Callable[[], None],
    ) -> int:
        """Do a command, and `also` something, in one transaction; return the epoch after it.

        A command whose id is known does nothing; one that can't be applied is reported as REJECTED.
        Raises `LockNotAvailable` while a subscription imports beside a reset, with nothing done:
        call it again with the same `prepared`. Raises `Fenced` when `epoch` is not the lease's, and
        what the database raises: the command is to be read again then.
        """
        with connection.transaction():
            if prepared.target is not None:
                reset.lock_subscriptions(connection)
            if ledger.begin(connection, command):
                epoch = self._decide(connection, command, epoch, prepared)
            also()
            # Last, for the lease can't be renewed from here to the commit.
            check_lease(connection, epoch)
        return epoch

    def _decide(
        self,
        connection: Connection,
        command: Command,
        epoch: int,
        prepared: PreparedCommand,
    ) -> int:
        detail: dict[str, Any]
        try:
            self._check(command, prepared.journal_id)
            with connection.transaction():  # undone alone when the database refuses it
                if isinstance(command, ClearCommand):
                    detail = self._clear(connection, command, prepared.end)
                elif isinstance(command, ControlCommand):
                    detail = self._control(connection, command)
                elif isinstance(command, RetryCommand):
                    detail = self._retry(connection, command)
                else:
                    epoch, detail = self._reset(connection, command, epoch, prepared)
        except (_Refused, *_UNSTORABLE) as error:
            why = str(error) if isinstance(error, _Refused) else reason(error)
            detail = {"rejected": why}
            ledger.end(connection, command, CommandState.REJECTED, why)
        ledger.audit(connection, command, detail)
        _tell(command, detail)
        return epoch

    def _check(self, command: Command, identity: str) -> None:
        if command.publisher_agent not in self.agents:
            raise _Refused(f"{self.subscriber} does not follow agent {command.publisher_agent}")
        if command.journal_id != identity:
            raise _Refused("the command is for another journal than the present one")
        if isinstance(command, ClearCommand) and not self.editable:
            raise _Refused(
                f"{self.subscriber} is not editable: subscribers of one farm would end up with "
                "different content; where that is wanted, start it with PACKHORSE_EDITABLE=true"
            )

    def _clear(self, connection: Connection, command: ClearCommand, end: int) -> dict[str, Any]:
        """Keep a clear; what is already behind the subscription is done at once."""
        up_to = min(command.offset, end - 1)
        connection.execute(
            """
            INSERT INTO bookkeeping.clear_command
                (subscriber, command_id, publisher_agent, journal_id, up_to)
            VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING
            """,
            (
                self.subscriber,
                command.command_id,
                command.publisher_agent,
                command.journal_id,
                up_to,
            ),
        )
        finish_what_is_passed(connection, self.subscriber)
        return {"up_to": up_to}

    def _control(self, connection: Connection, command: ControlCommand) -> dict[str, Any]:
        before = control.lock(connection, command.publisher_agent)
        control.store(connection, command.publisher_agent, command.desired, command.command_id)
        ledger.end(connection, command, CommandState.APPLIED)
        return {"from": before.value, "to": command.desired.value}

    def _retry(self, connection: Connection, command: RetryCommand) -> dict[str, Any]:
        """Let the subscription know of the command.

        It tries what is in front of it, whatever that is.
        """
        agent = command.publisher_agent
        desired = control.lock(connection, agent)
        if desired is not DesiredState.RUN:
            raise _Refused(
                f"the desired state of the subscription of {agent} is {desired.value}; resume it, "
                "and the package in front is tried at once"
            )
        control.store(connection, agent, desired, command.command_id)
        ledger.end(connection, command, CommandState.APPLIED)
        return {}

    def _target(
        self,
        connection: Connection,
        command: Command,
        identity: str,
        check: Callable[[], None],
    ) -> reset.ResetTarget | None:
        """Read for a reset, outside any transaction, what the subscription needs at its new offset.

        Returns None for a command that will not need it. Raises `ResetOutsideLog`, and what the
        journal raises.
        """
        if not isinstance(command, ResetCommand) or command.publisher_agent not in self.agents:
            return None
        wanted = control.load(connection).get(command.publisher_agent)
        if wanted is None or wanted.desired is not DesiredState.STOP:
            return None
        return reset.target(
            self.journal,
            self.package_topic,
            reset.ResetPoint(command.publisher_agent, identity, command.offset),
            remember=self.remembers,
            check=check,
        )

    def _reset(
        self,
        connection: Connection,
        command: ResetCommand,
        epoch: int,
        prepared: PreparedCommand,
    ) -> tuple[int, dict[str, Any]]:
        agent, target = command.publisher_agent, prepared.target
        is_stopped = control.lock(connection, agent) is DesiredState.STOP
        if is_stopped and prepared.refusal:
            raise _Refused(prepared.refusal)
        # Without a target it was not stopped yet when the log was read.
        if not is_stopped or target is None:
            raise _Refused(f"the subscription of {agent} is not stopped; stop it first")
        changed = reset.move(connection, epoch + 1, target)
        _forget_snapshot(connection, agent, target.mark.offset)
        ledger.abandon_clears(
            connection,
            self.subscriber,
            f"the offset was reset to {command.offset} before it was done",
            agent=agent,
        )
        ledger.end(connection, command, CommandState.APPLIED)
        return reset.raise_epoch(connection, epoch), changed


def _tell(command: Command, detail: Mapping[str, Any]) -> None:
    logger.info(
        "a command was rejected" if "rejected" in detail else "a command is in force",
        extra={
            "command_id": command.command_id,
            "action": ledger.action_of(command),
            "agent": command.publisher_agent,
            "user": command.user,
            **detail,
        },
    )


def _forget_snapshot(connection: Connection, agent: str, offset: int) -> None:
    """Forget which snapshot was loaded, when a subscription is back before it.

    The subscription imports what the snapshot left out, so it is no longer what the content began
    with.
    """
    connection.execute(
        "DELETE FROM bookkeeping.joined_snapshot "
        "WHERE log_offset > %s AND %s = ANY(publisher_agents)",
        (offset, agent),
    )


def check_lease(connection: Connection, epoch: int) -> None:
    """Keep the lease as it is until the commit. Raises `Fenced` when another worker has it."""
    held = connection.execute("SELECT FROM bookkeeping.lease WHERE epoch = %s FOR SHARE", (epoch,))
    if held.rowcount != 1:
        raise Fenced("another worker has the lease of this database")


def finish_what_is_passed(connection: Connection, subscriber: str) -> None:
    """End the clear commands whose bound their subscription's position has reached.

    A subscription that has no position in the journal is before its first offset.
    """
    rows = connection.execute(
        """
        SELECT DISTINCT publisher_agent, journal_id, coalesce(log_offset, -1)
        FROM bookkeeping.clear_command
        LEFT JOIN bookkeeping.position USING (publisher_agent, journal_id)
        WHERE subscriber = %s
        """,
        (subscriber,),
    )
    for agent, journal_id, offset in rows.fetchall():
        ledger.finish_clears(connection, subscriber, agent, journal_id, offset)
