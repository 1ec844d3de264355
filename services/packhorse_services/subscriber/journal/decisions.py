"""What became of a package, written in the transaction that decides it (R9)."""

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import Connection

from packhorse.wire.messages import Status
from packhorse_services.subscriber.journal.arrivals import Mark
from packhorse_services.subscriber.journal.position import Position


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of one package of a subscription."""

    mark: Mark
    status: Status
    attempts: int = 0
    reason: str = ""
    command_id: str = ""
    left_out: bool = False
    """Of SKIPPED: it is not for this subscriber (R35)."""


def left_out(mark: Mark, reason: str) -> Decision:
    """Return the decision about a package that is not for this subscriber."""
    return Decision(mark, Status.SKIPPED, reason=reason, left_out=True)


_RECORD = """
INSERT INTO bookkeeping.status (
    publisher_agent, journal_id, subscriber,
    log_offset, package_id, status, attempts, reason, command_id, left_out)
SELECT %s, %s, %s, decided.* FROM unnest(
    %s::bigint[], %s::text[], %s::text[], %s::int[], %s::text[], %s::text[],
    %s::boolean[]) AS decided
ON CONFLICT (publisher_agent, log_offset) DO UPDATE SET
    journal_id = excluded.journal_id,
    subscriber = excluded.subscriber, package_id = excluded.package_id,
    status = excluded.status, attempts = excluded.attempts, reason = excluded.reason,
    command_id = excluded.command_id, decided_at = excluded.decided_at,
    left_out = excluded.left_out
"""


def record_statuses(
    connection: Connection, subscriber: str, position: Position, decisions: Sequence[Decision]
) -> None:
    """Store a subscription's statuses in the caller's transaction, to be sent later."""
    if not decisions:
        return
    connection.execute(
        _RECORD,
        (
            position.agent,
            position.journal_id,
            subscriber,
            [decision.mark.offset for decision in decisions],
            [decision.mark.package_id for decision in decisions],
            [decision.status.value for decision in decisions],
            [decision.attempts for decision in decisions],
            [decision.reason for decision in decisions],
            [decision.command_id for decision in decisions],
            [decision.left_out for decision in decisions],
        ),
    )
