"""What people do to jobs that no attempt does: ask it to stop, forget jobs, take them away.

All functions are called in a READ COMMITTED transaction as the bookkeeper. They return the numbers
of the jobs that were in the state for it.
"""

from collections.abc import Sequence

from psycopg import Connection, sql

from packhorse.jobs.hints import JOBS


def request_stop(connection: Connection, numbers: Sequence[int]) -> set[int]:
    """Ask whoever does these ACTIVE jobs to stop, on whatever instance; none will run once more."""
    rows = connection.execute(
        """
        UPDATE jobs.job SET stop_requested = true, again = NULL
        WHERE number IN (
            SELECT number FROM jobs.job WHERE number = ANY(%s) AND state = 'ACTIVE'
            ORDER BY number FOR UPDATE)
        RETURNING number
        """,
        (list(numbers),),
    )
    found = {number for (number,) in rows}
    if found:
        connection.execute("SELECT pg_notify(%s, '')", (JOBS,))
    return found


def forget(connection: Connection, numbers: Sequence[int]) -> set[int]:
    """Forget jobs of history, and that their ids were used. Notifies REMOVED."""
    rows = connection.execute(
        """
        DELETE FROM jobs.finished WHERE number IN (
            SELECT number FROM jobs.finished WHERE number = ANY(%s) ORDER BY number FOR UPDATE)
        RETURNING number, topic, id, queue, state, instance, attempts, result_message
        """,
        (list(numbers),),
    ).fetchall()
    return {row[0] for row in rows}


_KEPT = """
    number, topic, id, priority, properties, application, created_at, ready_at, only_on, schedule,
    traceparent, attempts, instance, started_at, stop_requested, progress, log, past_attempts, extra
"""


def abandon(connection: Connection, numbers: Sequence[int], reason: str) -> set[int]:
    """End ACTIVE jobs as DROPPED; whoever works on one loses it. Notifies REMOVED."""
    query = sql.SQL(
        """
        WITH held AS (
            SELECT number FROM jobs.job WHERE number = ANY(%s) AND state = 'ACTIVE'
            ORDER BY number FOR UPDATE
        ), gone AS (
            DELETE FROM jobs.job USING held WHERE job.number = held.number RETURNING job.*
        )
        INSERT INTO jobs.finished ({kept}, queue, max_retries, retry, epoch, result_message, state,
            finished_at)
        SELECT {kept}, queue.name, coalesce(gone.max_retries, queue.max_retries), true, epoch + 1,
            %s, 'DROPPED', clock_timestamp()
        FROM gone JOIN jobs.topic USING (topic) JOIN jobs.queue ON queue.name = topic.queue
        RETURNING number
        """
    ).format(kept=sql.SQL(_KEPT))
    return {number for (number,) in connection.execute(query, (list(numbers), reason))}
