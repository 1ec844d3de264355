"""Removing old fire times, and schedules that have ended, in bounded batches."""

from datetime import timedelta

from psycopg import Connection

KEPT = timedelta(days=30)
"""How long rows of fire times are kept, and schedules of people that have no next one."""


def forget_fire_times(connection: Connection, limit: int = 1_000) -> int:
    """Remove rows of fire times that were decided before `KEPT`; return how many.

    `limit` at most; call again while it is that many. As the bookkeeper.
    """
    return connection.execute(
        """
        DELETE FROM jobs.tick WHERE (schedule, tick) IN (
            SELECT schedule, tick FROM jobs.tick WHERE decided_at < clock_timestamp() - %s
            ORDER BY decided_at LIMIT %s FOR UPDATE SKIP LOCKED)
        """,
        (KEPT, limit),
    ).rowcount


def forget_ended(connection: Connection, limit: int = 1_000) -> int:
    """Remove schedules of people that ended before `KEPT`; return how many, `limit` at most.

    One that a program declares stays: it would come back, and fire again.
    """
    return connection.execute(
        """
        DELETE FROM jobs.schedule WHERE name IN (
            SELECT name FROM jobs.schedule WHERE next_tick IS NULL AND origin <> '@declared'
            AND greatest(last_tick, updated_at) < clock_timestamp() - %s
            LIMIT %s FOR UPDATE SKIP LOCKED)
        """,
        (KEPT, limit),
    ).rowcount
