"""The book of cleanup runs: which wait, which run, what each of them removed.

Written in the lock holder's transactions; read by anybody. All times are the database's (R28).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from packhorse.errors import Permanent
from packhorse.messaging.api import Bounds
from packhorse_services.cleanup.report import (
    Candidate,
    CleanupRun,
    ReasonTotal,
    RemovalDocument,
    RunState,
)

_KEPT_RUNS = 200
_SELECT = (
    "SELECT id, origin, dry_run, state, requested_at, started_at, ended_at, journal_id, "
    "oldest_offset, next_offset, kept, error FROM bookkeeping.cleanup_run "
)


class RunWaits(Permanent):
    """A run waits already and will begin soon."""


def request(connection: Connection, origin: str, *, dry_run: bool) -> int:
    """Ask for a run and return its id. Raises `RunWaits`."""
    try:
        with connection.transaction():
            return _insert(connection, origin, dry_run, RunState.REQUESTED)
    except psycopg.errors.UniqueViolation as error:
        raise RunWaits("a run waits already; ask again when it has begun") from error


def begin_waiting(connection: Connection, epoch: int) -> CleanupRun | None:
    """Begin the run that was asked for and waits; None when there is none."""
    abandon(connection, epoch)
    waiting = connection.execute(
        "SELECT id FROM bookkeeping.cleanup_run WHERE state = 'REQUESTED'"
    ).fetchone()
    return None if waiting is None else _begin(connection, waiting[0], epoch)


def begin_again(connection: Connection, epoch: int, requested: int) -> CleanupRun | None:
    """Begin anew the run that was asked for; None when it has succeeded or was forgotten."""
    before = find(connection, requested)
    if before is None or before.state is RunState.SUCCEEDED:
        return None
    return begin(connection, epoch, before.origin, dry_run=before.dry_run)


def begin(connection: Connection, epoch: int, origin: str, *, dry_run: bool) -> CleanupRun:
    """Begin a run at once."""
    abandon(connection, epoch)
    return _begin(connection, _insert(connection, origin, dry_run, RunState.RUNNING), epoch)


def abandon(connection: Connection, epoch: int) -> None:
    """Close runs of earlier holders, and forget the oldest runs."""
    connection.execute(
        "UPDATE bookkeeping.cleanup_run SET state = 'ABANDONED', ended_at = clock_timestamp() "
        "WHERE state = 'RUNNING' AND epoch < %s",
        (epoch,),
    )
    connection.execute(
        "DELETE FROM bookkeeping.cleanup_run WHERE id <= "
        "(SELECT id FROM bookkeeping.cleanup_run ORDER BY id DESC OFFSET %s LIMIT 1)",
        (_KEPT_RUNS,),
    )


def note_journal(connection: Connection, journal_id: str) -> bool:
    """Remember the journal; returns whether it is another one than the stored offsets speak of."""
    [(before,)] = connection.execute("SELECT journal_id FROM bookkeeping.cleanup").fetchall()
    connection.execute("UPDATE bookkeeping.cleanup SET journal_id = %s", (journal_id,))
    return before not in ("", journal_id)


def note_bounds(connection: Connection, run: int, journal_id: str, bounds: Bounds) -> None:
    """Note what the run decides by."""
    connection.execute(
        "UPDATE bookkeeping.cleanup_run SET journal_id = %s, oldest_offset = %s, next_offset = %s "
        "WHERE id = %s",
        (journal_id, bounds.oldest, bounds.next, run),
    )


def mark(connection: Connection, run: int, candidates: Sequence[Candidate]) -> None:
    """Write down what will be removed, before any of it is."""
    connection.execute(
        """
        INSERT INTO bookkeeping.cleanup_removal (run, key, reason, length, log_offset)
        SELECT %s, * FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::bigint[])
        """,
        (
            run,
            [candidate.key for candidate in candidates],
            [candidate.reason.value for candidate in candidates],
            [candidate.length for candidate in candidates],
            [candidate.log_offset for candidate in candidates],
        ),
    )


def note_removed(connection: Connection, run: int, keys: Collection[str]) -> None:
    """Note that these are gone."""
    connection.execute(
        "UPDATE bookkeeping.cleanup_removal SET removed_at = clock_timestamp() "
        "WHERE run = %s AND key = ANY(%s)",
        (run, list(keys)),
    )


def end(connection: Connection, run: int, kept: Mapping[str, int]) -> None:
    """Close a run that went well."""
    connection.execute(
        "UPDATE bookkeeping.cleanup_run SET state = 'SUCCEEDED', ended_at = clock_timestamp(), "
        "kept = %s WHERE id = %s",
        (Jsonb(dict(kept)), run),
    )


def fail(connection: Connection, run: int, error: str) -> None:
    """Close a run that did not."""
    connection.execute(
        "UPDATE bookkeeping.cleanup_run SET state = 'FAILED', ended_at = clock_timestamp(), "
        "error = %s WHERE id = %s",
        (error, run),
    )


def find(connection: Connection, run: int) -> CleanupRun | None:
    """Return one run."""
    found = _select(connection, _SELECT + "WHERE id = %s", run)
    return found[0] if found else None


def recent(connection: Connection, limit: int) -> list[CleanupRun]:
    """Return the last runs, the newest first."""
    return _select(connection, _SELECT + "ORDER BY id DESC LIMIT %s", limit)


def removals(
    connection: Connection, run: int, after: str, limit: int | None
) -> list[RemovalDocument]:
    """Return a page of a run's removals, by key, from behind the key `after`; None is no limit."""
    rows = connection.execute(
        "SELECT key, reason, length, log_offset, removed_at FROM bookkeeping.cleanup_removal "
        "WHERE run = %s AND key > %s ORDER BY key LIMIT %s",
        (run, after, limit),
    ).fetchall()
    return [
        RemovalDocument(key=key, reason=reason, bytes=length, offset=offset, removed_at=removed_at)
        for key, reason, length, offset, removed_at in rows
    ]


def _insert(connection: Connection, origin: str, dry_run: bool, state: RunState) -> int:
    [(run,)] = connection.execute(
        "INSERT INTO bookkeeping.cleanup_run (origin, dry_run, state) "
        "VALUES (%s, %s, %s) RETURNING id",
        (origin, dry_run, state.value),
    ).fetchall()
    return int(run)


def _begin(connection: Connection, run: int, epoch: int) -> CleanupRun:
    connection.execute(
        "UPDATE bookkeeping.cleanup_run SET state = 'RUNNING', epoch = %s, "
        "started_at = clock_timestamp() WHERE id = %s",
        (epoch, run),
    )
    return _select(connection, _SELECT + "WHERE id = %s", run)[0]


def _select(connection: Connection, query: str, value: int) -> list[CleanupRun]:
    rows = connection.cursor(row_factory=dict_row).execute(query, (value,)).fetchall()
    totals = _totals(connection, [row["id"] for row in rows])
    known = [{name: value for name, value in row.items() if value is not None} for row in rows]
    return [CleanupRun.model_validate({**row, "totals": totals[row["id"]]}) for row in known]


def _totals(connection: Connection, runs: Sequence[int]) -> dict[int, dict[str, ReasonTotal]]:
    rows = connection.execute(
        "SELECT run, reason, count(*), sum(length)::bigint FROM bookkeeping.cleanup_removal "
        "WHERE run = ANY(%s) GROUP BY run, reason",
        (list(runs),),
    ).fetchall()
    found: dict[int, dict[str, ReasonTotal]] = {run: {} for run in runs}
    for run, reason, count, size in rows:
        found[run][reason] = ReasonTotal(count, size)
    return found


def last_success(connection: Connection) -> float | None:
    """Return when the last run ended that removed and succeeded, in seconds since 1970."""
    row: Any = connection.execute(
        "SELECT extract(epoch FROM max(ended_at))::float8 FROM bookkeeping.cleanup_run "
        "WHERE state = 'SUCCEEDED' AND NOT dry_run"
    ).fetchone()
    found: float | None = row[0]
    return found
