"""Removes old events, in bounded batches: those that were visible a long time ago.

What is old is known by horizons: each pruning notes which transactions had ended (a snapshot) and
when, by the database's clock. Later, what was visible then is removed. So an event stays at least
as long after its commit as was asked for, however long its transaction took. A reader whose
position is older than the last horizon that was pruned up to has a gap, and no other has.
"""

from dataclasses import dataclass

from psycopg import Connection

from packhorse.db.transactions import Connect, bookkeeping
from packhorse.runtime.metrics import EVENTS_PRUNED

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class EventRetention:
    """How long events and cursors stay, in seconds."""

    events_s: float = 3_600.0
    """After the commit, and up to the time between two prunings longer."""
    cursors_s: float = 30 * DAY_S
    """After an instance was last seen; it begins as a new one after that."""


@dataclass(frozen=True, slots=True)
class PrunedEvents:
    """What was removed."""

    events: int
    cursors: int
    more: bool
    """Whether there was more to remove than was allowed."""


def prune_events(
    connect: Connect,
    retention: EventRetention = EventRetention(),
    *,
    batch: int = 1_000,
    most: int = 100_000,
) -> PrunedEvents:
    """Remove old events and cursors, `most` events at most, each batch in its own transaction.

    Call it every few minutes. Several may run at a time. Raises `psycopg.Error`; what was removed
    by then stays so.
    """
    with connect() as connection:
        horizon = _move_horizon(connection, retention.events_s)
        removed, after = 0, "0"
        while horizon is not None and removed < most:
            count, after = _remove(connection, horizon, after, min(batch, most - removed))
            removed += count
            if count == 0:
                break
        removed += _remove_foreign(connection, retention.events_s, max(0, most - removed))
        cursors = _remove_cursors(connection, retention.cursors_s)
    EVENTS_PRUNED.inc(removed)
    return PrunedEvents(removed, cursors, more=removed >= most)


_MARK_HORIZON = """
UPDATE jobs.event_horizon AS h SET removed_to = greatest(
    (SELECT max(removed_to) FROM jobs.event_horizon),
    (SELECT xid FROM jobs.event
     WHERE xid < pg_snapshot_xmax(h.seen) AND pg_visible_in_snapshot(xid, h.seen)
     ORDER BY xid DESC LIMIT 1))
WHERE number = (
    SELECT max(number) FROM jobs.event_horizon
    WHERE removed_to IS NOT NULL
        OR taken_at <= clock_timestamp() - make_interval(secs => %s))
RETURNING number, seen::text
"""


def _move_horizon(connection: Connection, events_s: float) -> str | None:
    """Note what is visible now, and return the newest horizon that is old enough.

    It is marked before anything is removed: readers look at the mark after they have read. Those
    of another server, from which this database was restored, say nothing about this one.
    """
    with bookkeeping(connection):
        connection.execute("INSERT INTO jobs.event_horizon DEFAULT VALUES")
        connection.execute(
            "DELETE FROM jobs.event_horizon "
            "WHERE pg_snapshot_xmax(seen) > pg_snapshot_xmax(pg_current_snapshot())"
        )
        chosen = connection.execute(_MARK_HORIZON, (events_s,)).fetchone()
        if chosen is None:
            return None
        connection.execute("DELETE FROM jobs.event_horizon WHERE number < %s", (chosen[0],))
        return str(chosen[1])


def _remove(connection: Connection, horizon: str, after: str, batch: int) -> tuple[int, str]:
    """Remove some events that the horizon shows; return how many, and where the next ones are."""
    with bookkeeping(connection):
        [(count, last)] = connection.execute(
            """
            WITH old AS (
                SELECT number FROM jobs.event
                WHERE xid >= %(after)s::xid8 AND xid < pg_snapshot_xmax(%(horizon)s::pg_snapshot)
                  AND pg_visible_in_snapshot(xid, %(horizon)s::pg_snapshot)
                ORDER BY xid, number LIMIT %(batch)s FOR UPDATE SKIP LOCKED),
            removed AS (
                DELETE FROM jobs.event USING old WHERE event.number = old.number
                RETURNING event.xid)
            SELECT count(*), coalesce(max(xid), %(after)s::xid8)::text FROM removed
            """,
            {"after": after, "horizon": horizon, "batch": batch},
        ).fetchall()
    return int(count), str(last)


def _remove_foreign(connection: Connection, events_s: float, most: int) -> int:
    """Remove old events of a server from which this database was restored: nobody can read them."""
    with bookkeeping(connection):
        return connection.execute(
            """
            DELETE FROM jobs.event WHERE number IN (
                SELECT number FROM jobs.event
                WHERE xid >= pg_snapshot_xmax(pg_current_snapshot())
                  AND created_at < clock_timestamp() - make_interval(secs => %s) LIMIT %s)
            """,
            (events_s, most),
        ).rowcount


def _remove_cursors(connection: Connection, cursors_s: float) -> int:
    with bookkeeping(connection):
        return connection.execute(
            "DELETE FROM jobs.event_cursor "
            "WHERE stored_at < clock_timestamp() - make_interval(secs => %s)",
            (cursors_s,),
        ).rowcount
