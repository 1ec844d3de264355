"""Commands in the author's database: one row each, whose state only ever goes forward.

All of it runs in the caller's transaction, as the bookkeeper.
"""

import enum
from dataclasses import dataclass, fields
from datetime import datetime

from psycopg import Connection
from psycopg.rows import class_row

from packhorse.wire.messages import (
    ClearCommand,
    Command,
    CommandState,
    CommandStatusMessage,
    ControlCommand,
    DesiredState,
    ResetCommand,
    RetryCommand,
)

_REASON_CHARACTERS = 1_000
_ID_CHARACTERS = 200
_BIG = 2**63 - 1
_LAST_MS = 253_402_300_799_000


class CommandKind(enum.Enum):
    """What a command asks of a subscription."""

    CLEAR = "CLEAR"
    RESUME = "RESUME"
    PAUSE = "PAUSE"
    STOP = "STOP"
    RESET = "RESET"
    RETRY = "RETRY"


_BY_DESIRE = {
    DesiredState.RUN: CommandKind.RESUME,
    DesiredState.PAUSE: CommandKind.PAUSE,
    DesiredState.STOP: CommandKind.STOP,
}
_DESIRED_BY = {kind: desired for desired, kind in _BY_DESIRE.items()}


@dataclass(frozen=True, slots=True)
class StoredCommand:
    """A row: `state` is ISSUED, SENT, SEEN, APPLIED or REJECTED; `removed` is a clear's."""

    command_id: str
    agent: str
    subscriber: str
    kind: str
    log_offset: int | None
    journal_id: str
    issued_by: str
    issued_at: datetime
    sent_at: datetime | None
    seen_at: datetime | None
    ended_at: datetime | None
    state: str
    removed: int | None
    reason: str

    def message(self) -> Command:
        """Return what is sent to the subscriber."""
        common = (self.command_id, self.subscriber, self.agent)
        more = (self.issued_by, int(self.issued_at.timestamp() * 1000), self.journal_id)
        kind = CommandKind(self.kind)
        if kind is CommandKind.CLEAR:
            return ClearCommand(*common, self.log_offset or 0, *more)
        if kind is CommandKind.RESET:
            return ResetCommand(*common, self.log_offset or 0, *more)
        if kind is CommandKind.RETRY:
            return RetryCommand(*common, *more)
        return ControlCommand(*common, _DESIRED_BY[kind], *more)


_COLUMNS = ", ".join(one.name for one in fields(StoredCommand))
"""Not all: a newer release may have added some."""


@dataclass(frozen=True, slots=True)
class CommandQuery:
    """Which commands are asked for, how many, and behind the one with which id."""

    subscriber: str | None
    state: str | None
    limit: int
    cursor: str | None


def kind_of(command: Command) -> CommandKind:
    """Return what a command asks."""
    if isinstance(command, ControlCommand):
        return _BY_DESIRE[command.desired]
    if isinstance(command, RetryCommand):
        return CommandKind.RETRY
    return CommandKind.RESET if isinstance(command, ResetCommand) else CommandKind.CLEAR


def write(connection: Connection, command: Command) -> None:
    """Write a command as ISSUED, by the database's clock."""
    connection.execute(
        """
        INSERT INTO bookkeeping.command (
            command_id, agent, subscriber, kind, log_offset,
            journal_id, issued_by, issued_at, state)
        VALUES (%s, %s, %s, %s, %s, %s, %s, clock_timestamp(), 'ISSUED')
        """,
        (
            command.command_id,
            command.publisher_agent,
            command.subscriber,
            kind_of(command).value,
            command.offset if isinstance(command, ClearCommand | ResetCommand) else None,
            command.journal_id,
            command.user,
        ),
    )


def next_unsent(connection: Connection, agent: str) -> StoredCommand | None:
    """Return the command issued first of those that are not known to be in the journal."""
    with connection.cursor(row_factory=class_row(StoredCommand)) as cursor:
        return cursor.execute(
            f"SELECT {_COLUMNS} FROM bookkeeping.command "  # noqa: S608 - own names
            "WHERE agent = %s AND state = 'ISSUED' ORDER BY issued_at, command_id LIMIT 1",
            (agent,),
        ).fetchone()


def mark_sent(connection: Connection, command_id: str) -> None:
    """Note that the journal has a command."""
    connection.execute(
        """
        UPDATE bookkeeping.command SET sent_at = coalesce(sent_at, clock_timestamp()),
            state = CASE state WHEN 'ISSUED' THEN 'SENT' ELSE state END
        WHERE command_id = %s
        """,
        (command_id,),
    )


_BEFORE = {
    CommandState.SEEN: ["ISSUED", "SENT"],
    CommandState.APPLIED: ["ISSUED", "SENT", "SEEN"],
    CommandState.REJECTED: ["ISSUED", "SENT", "SEEN"],
}


_NOTE_STATUS = """
UPDATE bookkeeping.command SET
    state = reported.state,
    sent_at = coalesce(sent_at, reported.at),
    seen_at = coalesce(seen_at, reported.at),
    ended_at = CASE WHEN reported.state <> 'SEEN' THEN reported.at END,
    removed = CASE WHEN reported.state <> 'SEEN' AND kind = 'CLEAR'
        THEN %(removed)s::bigint END,
    reason = %(reason)s
FROM (SELECT %(state)s::text AS state, least(clock_timestamp(),
    to_timestamp(%(decided_ms)s::float8 / 1000)) AS at) AS reported
WHERE command_id = %(command_id)s AND subscriber = %(subscriber)s AND agent = %(agent)s
AND command.state = ANY(%(before)s)
"""


def note_status(connection: Connection, message: CommandStatusMessage) -> bool:
    """Store what a subscriber reports about a command; return whether that was new.

    A repeat, a step backwards, an unknown command and somebody else's change nothing. Whatever
    the message holds, this raises nothing but the database's own errors (R30).
    """
    ids = (message.command_id, message.subscriber, message.publisher_agent)
    if any("\0" in text or len(text) > _ID_CHARACTERS for text in ids):
        return False
    known_ms = message.decided_ms if 0 < message.decided_ms <= _LAST_MS else None
    noted = connection.execute(
        _NOTE_STATUS,
        {
            "state": message.state.value,
            "decided_ms": known_ms,
            "removed": min(max(message.removed, 0), _BIG),
            "reason": message.reason.replace("\0", "")[:_REASON_CHARACTERS],
            "command_id": message.command_id,
            "subscriber": message.subscriber,
            "agent": message.publisher_agent,
            "before": _BEFORE[message.state],
        },
    )
    return noted.rowcount == 1


def find(connection: Connection, agent: str, command_id: str) -> StoredCommand | None:
    """Return one command of an agent, or None."""
    with connection.cursor(row_factory=class_row(StoredCommand)) as cursor:
        return cursor.execute(
            f"SELECT {_COLUMNS} FROM bookkeeping.command "  # noqa: S608 - own names
            "WHERE agent = %s AND command_id = %s",
            (agent, command_id),
        ).fetchone()


def forget(connection: Connection, older_than_s: float, limit: int) -> int:
    """Remove up to `limit` commands older than that by the database's clock; returns how many."""
    return connection.execute(
        """
        DELETE FROM bookkeeping.command WHERE command_id = ANY(ARRAY(
            SELECT command_id FROM bookkeeping.command
            WHERE issued_at < clock_timestamp() - make_interval(secs => %s) LIMIT %s))
        """,
        (older_than_s, limit),
    ).rowcount
