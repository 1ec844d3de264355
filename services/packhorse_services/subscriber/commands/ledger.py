"""What is reported about commands: rows written with its effect, sent afterwards (R9, R19).

The SEEN row of a command is also how its repetition is known, and where a clear counts what it
has removed until it is done. All of it runs in the caller's transaction, as the bookkeeper.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from psycopg import Connection

from packhorse.bookkeeping.audit_rows import AuditRow
from packhorse.wire.messages import (
    ClearCommand,
    Command,
    CommandState,
    CommandStatusMessage,
    ControlCommand,
    RetryCommand,
)

_BATCH = 500


def begin(connection: Connection, command: Command) -> bool:
    """Note that a command was seen; False when it was known already, and nothing is to be done."""
    seen = connection.execute(
        """
        INSERT INTO bookkeeping.command_status (command_id, state, subscriber, publisher_agent)
        VALUES (%s, 'SEEN', %s, %s) ON CONFLICT DO NOTHING
        """,
        (command.command_id, command.subscriber, command.publisher_agent),
    )
    return seen.rowcount == 1


def end(connection: Connection, command: Command, state: CommandState, reason: str = "") -> None:
    """Note how a command ended; a clear that is not under way has removed nothing."""
    connection.execute(
        """
        INSERT INTO bookkeeping.command_status
            (command_id, state, subscriber, publisher_agent, reason)
        VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING
        """,
        (command.command_id, state.value, command.subscriber, command.publisher_agent, reason),
    )


def action_of(command: Command) -> str:
    """Return the word for what a command does."""
    if isinstance(command, ControlCommand):
        return command.desired.value
    if isinstance(command, RetryCommand):
        return "RETRY"
    return "CLEAR" if isinstance(command, ClearCommand) else "RESET"


def audit(connection: Connection, command: Command, detail: Mapping[str, Any]) -> None:
    """Write down who did what to a subscription of this database."""
    AuditRow(
        command.subscriber,
        command.publisher_agent,
        command.command_id,
        command.user,
        action_of(command),
        detail,
    ).write(connection)


def count_removed(connection: Connection, command_ids: Iterable[str]) -> None:
    """Count packages that clear commands have removed, one id for each."""
    counts = Counter(command_id for command_id in command_ids if command_id)
    if not counts:
        return
    connection.execute(
        """
        UPDATE bookkeeping.command_status SET removed = removed + counted.packages
        FROM unnest(%s::text[], %s::bigint[]) AS counted (command_id, packages)
        WHERE command_status.command_id = counted.command_id AND state = 'SEEN'
        """,
        (list(counts), list(counts.values())),
    )


def finish_clears(
    connection: Connection, subscriber: str, agent: str, journal_id: str, up_to: int
) -> None:
    """End the clear commands of a subscription that has nothing left to remove up to `up_to`."""
    connection.execute(
        """
        WITH done AS (
            DELETE FROM bookkeeping.clear_command
            WHERE subscriber = %s AND publisher_agent = %s AND journal_id = %s AND up_to <= %s
            RETURNING command_id)
        INSERT INTO bookkeeping.command_status
            (command_id, state, subscriber, publisher_agent, removed)
        SELECT command_id, 'APPLIED', subscriber, publisher_agent, removed
        FROM bookkeeping.command_status JOIN done USING (command_id) WHERE state = 'SEEN'
        ON CONFLICT DO NOTHING
        """,
        (subscriber, agent, journal_id, up_to),
    )


_ABANDON = """
WITH ended AS (
    DELETE FROM bookkeeping.clear_command WHERE subscriber = %(subscriber)s
    AND (%(agent)s::text IS NULL OR publisher_agent = %(agent)s)
    AND (%(journal_id)s::text IS NULL OR journal_id <> %(journal_id)s)
    AND (%(up_to)s::bigint IS NULL OR up_to <= %(up_to)s)
    RETURNING command_id)
INSERT INTO bookkeeping.command_status
    (command_id, state, subscriber, publisher_agent, removed, reason)
SELECT command_id, 'REJECTED', subscriber, publisher_agent, removed, %(reason)s
FROM bookkeeping.command_status JOIN ended USING (command_id) WHERE state = 'SEEN'
ON CONFLICT DO NOTHING
"""


def abandon_clears(
    connection: Connection,
    subscriber: str,
    reason: str,
    *,
    agent: str | None = None,
    journal_id: str | None = None,
    up_to: int | None = None,
) -> None:
    """Reject clear commands that are still to be done: of a subscription, or of other journals.

    With `up_to`, only those that end at or below that offset.
    """
    connection.execute(
        _ABANDON,
        {
            "subscriber": subscriber,
            "agent": agent,
            "journal_id": journal_id,
            "up_to": up_to,
            "reason": reason,
        },
    )


def unsent(
    connection: Connection, subscriber: str, instance: str
) -> Sequence[CommandStatusMessage]:
    """Return what is still to be reported, in the order in which it was decided.

    Of this subscriber's own commands only: a copied database holds its source's too (R12).
    """
    rows = connection.execute(
        """
        SELECT command_id, publisher_agent, state,
            CASE state WHEN 'SEEN' THEN 0 ELSE removed END, reason,
            (extract(epoch FROM decided_at) * 1000)::bigint
        FROM bookkeeping.command_status WHERE subscriber = %s AND NOT sent
        ORDER BY decided_at, state = 'SEEN' DESC LIMIT %s
        """,
        (subscriber, _BATCH),
    )
    return [
        CommandStatusMessage(
            command_id=command_id,
            subscriber=subscriber,
            publisher_agent=agent,
            state=CommandState(state),
            removed=removed,
            reason=reason,
            decided_ms=decided_ms,
            subscriber_instance=instance,
        )
        for command_id, agent, state, removed, reason, decided_ms in rows.fetchall()
    ]


def mark_sent(connection: Connection, reported: Sequence[CommandStatusMessage]) -> None:
    """Note that these are in the journal, and forget the oldest.

    Ids are kept longer than the command topic keeps a command, so that each stays known.
    """
    connection.execute(
        """
        UPDATE bookkeeping.command_status SET sent = true
        FROM unnest(%s::text[], %s::text[]) AS sent (command_id, state)
        WHERE command_status.command_id = sent.command_id AND command_status.state = sent.state
        """,
        ([one.command_id for one in reported], [one.state.value for one in reported]),
    )
    connection.execute(
        """
        DELETE FROM bookkeeping.command_status
        WHERE sent AND decided_at < now() - interval '30 days'
        AND command_id NOT IN (SELECT command_id FROM bookkeeping.clear_command)
        """
    )
