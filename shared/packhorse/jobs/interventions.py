"""What people do to jobs that no attempt does: forget one of history, take one from its worker.

All functions are called in a READ COMMITTED transaction as the bookkeeper. They return the numbers
of the jobs that were in the state for it, and notify REMOVED.
"""

from collections.abc import Sequence

from psycopg import Connection
from psycopg.rows import dict_row

from packhorse.jobs import statistics
from packhorse.jobs.ending_rows import finish_waiting
from packhorse.jobs.event_store import record
from packhorse.jobs.given import read_jobs
from packhorse.jobs.job import Job, JobState
from packhorse.jobs.notifications import REMOVED, notification
from packhorse.jobs.queues import tell_workers
from packhorse.jobs.rows import FINISHED, job_of


def forget_finished(connection: Connection, numbers: Sequence[int], reason: str) -> set[int]:
    """Forget jobs of history, and that their ids were used."""
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(_LOCK_FINISHED, (list(numbers),))
        jobs = [job_of(row) for row in cursor]
    found = [job.number for job in jobs]
    connection.execute("DELETE FROM jobs.finished WHERE number = ANY(%s)", (found,))
    return _told(connection, jobs, reason)


def abandon(connection: Connection, numbers: Sequence[int], reason: str) -> set[int]:
    """End ACTIVE jobs as DROPPED; whoever works on one has lost it, and is told so.

    Waits for a transaction that holds one (`claims.check`).
    """
    rows = connection.execute(_LOCK_ACTIVE, (list(numbers),)).fetchall()
    if not rows:
        return set()
    found = [number for number, *_ in rows]
    finish_waiting(connection, found, JobState.DROPPED, reason)
    places = [(queue, topic) for _, queue, topic, _ in rows]
    statistics.add(connection, statistics.of_ended(places, JobState.DROPPED, rows[-1][-1]))
    tell_workers(connection)
    return _told(connection, list(read_jobs(connection, found).values()), reason)


def _told(connection: Connection, jobs: Sequence[Job], reason: str) -> set[int]:
    record(connection, [notification(REMOVED, job, "", reason) for job in jobs])
    return {job.number for job in jobs}


_LOCK_FINISHED = f"""
SELECT {FINISHED} FROM jobs.finished j WHERE j.number = ANY(%s) ORDER BY j.number FOR UPDATE
"""  # noqa: S608
_LOCK_ACTIVE = """
SELECT j.number, t.queue, j.topic, clock_timestamp() FROM jobs.job j JOIN jobs.topic t USING (topic)
WHERE j.number = ANY(%s) AND j.state = 'ACTIVE' ORDER BY j.number FOR UPDATE OF j
"""
