"""Outcomes in the author's database: a row for each package that a subscriber did not import.

All of it runs in the caller's transaction, as the bookkeeper. One decision of a subscriber that
comes twice, however late, changes nothing (R9); a later one, as after an offset reset, takes its
place. So an outcome that is taken back leaves a row that is IMPORTED, and that nobody is shown.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from psycopg import Connection

from packhorse.wire.messages import Status


@dataclass(frozen=True, slots=True)
class StoredOutcome:
    """What a subscriber did with the package at `offset` of the log `journal_id`."""

    subscriber: str
    journal_id: str
    offset: int
    package_id: str
    status: Status
    attempts: int
    reason: str
    command_id: str
    decided_ms: int
    """By the clock of the subscriber's database; 0 when it does not say."""
    left_out: bool = False
    """Whether it is not for this subscriber, and so is where it is wanted without it (R35)."""


Key = tuple[str, str, int]
"""Subscriber, journal id, offset."""


def key_of(outcome: StoredOutcome) -> Key:
    """Return what is one package at one subscriber."""
    return outcome.subscriber, outcome.journal_id, outcome.offset


def write(
    connection: Connection, agent: str, outcomes: Sequence[tuple[StoredOutcome, bytes | None]]
) -> None:
    """Store outcomes, each with its package's entry when it is known; keys are unique.

    An IMPORTED one is the trace of those that it has taken back.
    """
    if not outcomes:
        return
    connection.execute(
        """
        INSERT INTO bookkeeping.outcome (agent, subscriber, journal_id, log_offset, package_id,
            status, attempts, reason, command_id, decided_at, left_out, entry)
        SELECT %b, subscriber, journal_id, log_offset, package_id, status, attempts, reason,
            command_id, to_timestamp(decided_ms / 1000.0), left_out, entry
        FROM unnest(%b::text[], %b::text[], %b::bigint[], %b::text[], %b::text[], %b::int[],
            %b::text[], %b::text[], %b::bigint[], %b::boolean[], %b::bytea[])
            AS reported (subscriber, journal_id, log_offset, package_id, status, attempts, reason,
                command_id, decided_ms, left_out, entry)
        ON CONFLICT (agent, subscriber, journal_id, log_offset) DO UPDATE SET
            package_id = excluded.package_id, status = excluded.status,
            attempts = excluded.attempts, reason = excluded.reason,
            command_id = excluded.command_id, decided_at = excluded.decided_at,
            recorded_at = excluded.recorded_at, entry = excluded.entry, redistributed_as = '',
            dismissed_at = NULL, left_out = excluded.left_out
        WHERE excluded.decided_at > outcome.decided_at
        """,
        (agent, *_columns(outcomes)),
    )


def _columns(outcomes: Sequence[tuple[StoredOutcome, bytes | None]]) -> tuple[list[Any], ...]:
    reported = [outcome for outcome, _ in outcomes]
    return (
        [one.subscriber for one in reported],
        [one.journal_id for one in reported],
        [one.offset for one in reported],
        [one.package_id for one in reported],
        [one.status.value for one in reported],
        [one.attempts for one in reported],
        [one.reason for one in reported],
        [one.command_id for one in reported],
        [one.decided_ms for one in reported],
        [one.left_out for one in reported],
        [entry for _, entry in outcomes],
    )


def imported_after_all(
    connection: Connection, agent: str, imported: Sequence[StoredOutcome]
) -> None:
    """Take back what an import that was decided later has overtaken."""
    if not imported:
        return
    connection.execute(
        """
        UPDATE bookkeeping.outcome SET status = 'IMPORTED', attempts = 0, reason = '',
            command_id = '', entry = NULL, redistributed_as = '',
            decided_at = to_timestamp(reported.decided_ms / 1000.0)
        FROM unnest(%b::text[], %b::text[], %b::bigint[], %b::bigint[])
            AS reported (subscriber, journal_id, log_offset, decided_ms)
        WHERE outcome.agent = %b AND outcome.subscriber = reported.subscriber
        AND outcome.journal_id = reported.journal_id AND outcome.log_offset = reported.log_offset
        AND outcome.decided_at < to_timestamp(reported.decided_ms / 1000.0)
        """,
        (
            [one.subscriber for one in imported],
            [one.journal_id for one in imported],
            [one.offset for one in imported],
            [one.decided_ms for one in imported],
            agent,
        ),
    )


def forget_behind_reset(connection: Connection, agent: str, command_id: str) -> None:
    """Take back what a subscription will decide anew, since an offset reset has moved it back.

    Nothing happens when the command is another one. Of a subscriber that does not say when it
    decided, a repeat can't be distinguished from a new decision, so nothing is kept.
    """
    behind = """
        command.command_id = %s AND command.agent = %s AND command.kind = 'RESET'
        AND command.state = 'APPLIED'
        AND outcome.agent = command.agent AND outcome.subscriber = command.subscriber
        AND outcome.journal_id = command.journal_id AND outcome.log_offset > command.log_offset
    """
    connection.execute(
        f"DELETE FROM bookkeeping.outcome USING bookkeeping.command WHERE {behind} "  # noqa: S608
        "AND outcome.decided_at = to_timestamp(0)".encode(),
        (command_id, agent),
    )
    connection.execute(
        "UPDATE bookkeeping.outcome SET status = 'IMPORTED', attempts = 0, reason = '', "  # noqa: S608
        "command_id = '', entry = NULL, redistributed_as = '' "
        f"FROM bookkeeping.command WHERE {behind}".encode(),
        (command_id, agent),
    )


def entries(connection: Connection, package_ids: Iterable[str]) -> dict[str, bytes]:
    """Return the entries of those packages that the outbox knows."""
    wanted = list(package_ids)
    if not wanted:
        return {}
    return dict(
        connection.execute(
            "SELECT package_id, entry FROM bookkeeping.outbox WHERE package_id = ANY(%s)", (wanted,)
        ).fetchall()
    )


class OutcomeThere(NamedTuple):
    """What a subscriber did with a package, as far as an event says it."""

    package_id: str = ""
    status: Status | None = None
    left_out: bool = False


def statuses_between(
    connection: Connection, agent: str, journal_id: str, first: int, last: int
) -> dict[int, dict[str, OutcomeThere]]:
    """Return by offset, then by subscriber, each outcome there; what was taken back is IMPORTED."""
    found: dict[int, dict[str, OutcomeThere]] = {}
    rows = connection.execute(
        "SELECT log_offset, subscriber, package_id, status, left_out FROM bookkeeping.outcome "
        "WHERE agent = %s AND journal_id = %s AND log_offset BETWEEN %s AND %s",
        (agent, journal_id, first, last),
    )
    for offset, subscriber, package_id, status, left_out in rows:
        found.setdefault(offset, {})[subscriber] = OutcomeThere(
            package_id, Status(status), left_out
        )
    return found


def failed_counts(connection: Connection, agent: str) -> dict[str, int]:
    """Return how long each subscriber's error queue is."""
    return dict(
        connection.execute(
            "SELECT subscriber, count(*) FROM bookkeeping.outcome "
            "WHERE agent = %s AND status = 'REMOVED_FAILED' AND dismissed_at IS NULL "
            "GROUP BY subscriber",
            (agent,),
        ).fetchall()
    )


def forget(
    connection: Connection,
    agent: str,
    journal_id: str,
    oldest: int,
    *,
    failed_s: float,
    limit: int,
) -> int:
    """Remove up to `limit` outcomes of packages below `oldest`, failures only after `failed_s`."""
    return connection.execute(
        """
        DELETE FROM bookkeeping.outcome WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM bookkeeping.outcome
            WHERE agent = %s AND journal_id = %s AND log_offset < %s
            AND (status <> 'REMOVED_FAILED'
                OR recorded_at < clock_timestamp() - make_interval(secs => %s))
            LIMIT %s))
        """,
        (agent, journal_id, oldest, failed_s, limit),
    ).rowcount


def forget_of_other_logs(
    connection: Connection,
    agent: str,
    journal_id: str,
    *,
    failed_s: float,
    others_s: float,
    limit: int,
) -> int:
    """Remove up to `limit` outcomes of logs other than `journal_id` that are as old as that.

    Nobody can ask for the bounds of a log that is no longer in use.
    """
    return connection.execute(
        """
        DELETE FROM bookkeeping.outcome WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM bookkeeping.outcome
            WHERE agent = %s AND (journal_id < %s OR journal_id > %s)
            AND recorded_at < clock_timestamp() - make_interval(
                secs => CASE status WHEN 'REMOVED_FAILED' THEN %s ELSE %s END)
            LIMIT %s))
        """,
        (agent, journal_id, journal_id, failed_s, others_s, limit),
    ).rowcount
