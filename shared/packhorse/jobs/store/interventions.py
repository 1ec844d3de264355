"""What people do to jobs that no attempt does: forget one of history, take one from its worker.

All functions are called in a READ COMMITTED transaction as the bookkeeper. They return the numbers
of the jobs that were in the state for it, and notify REMOVED.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from psycopg import Connection
from psycopg.rows import class_row, dict_row

from packhorse.jobs.event_store import record
from packhorse.jobs.job import Job, JobState
from packhorse.jobs.store import statistics
from packhorse.jobs.store.ending_rows import finish_waiting
from packhorse.jobs.store.given import read_jobs
from packhorse.jobs.store.notifications import REMOVED, notification
from packhorse.jobs.store.queues import notify_workers
from packhorse.jobs.store.rows import FINISHED, FROM_UNFINISHED, job_of


@dataclass(frozen=True, slots=True)
class _Held:
    number: int
    topic: str
    queue: str
    max_retries: int
    now: datetime


def forget_finished(connection: Connection, numbers: Sequence[int], reason: str) -> set[int]:
    """Forget jobs of history, and that their ids were used."""
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute(_LOCK_FINISHED, (list(numbers),))
        jobs = [job_of(row) for row in cursor]
    found = [job.number for job in jobs]
    connection.execute("DELETE FROM jobs.finished WHERE number = ANY(%s)", (found,))
    return _notified(connection, jobs, reason)


def abandon(connection: Connection, numbers: Sequence[int], reason: str) -> set[int]:
    """End ACTIVE jobs as DROPPED; whoever works on one has lost it, and is notified.

    Waits for a transaction that holds one (`claims.check`).
    """
    with connection.cursor(row_factory=class_row(_Held)) as cursor:
        held = cursor.execute(_LOCK_ACTIVE, (list(numbers),)).fetchall()
    if not held:
        return set()
    moved = [(one.number, one.queue, one.max_retries) for one in held]
    finish_waiting(connection, moved, JobState.DROPPED, reason)
    places = [(one.queue, one.topic) for one in held]
    statistics.add(connection, statistics.of_ended(places, JobState.DROPPED, held[-1].now))
    notify_workers(connection)
    return _notified(
        connection, list(read_jobs(connection, [one.number for one in held]).values()), reason
    )


def _notified(connection: Connection, jobs: Sequence[Job], reason: str) -> set[int]:
    record(connection, [notification(REMOVED, job, "", reason) for job in jobs])
    return {job.number for job in jobs}


_LOCK_FINISHED = f"""
SELECT {FINISHED} FROM jobs.finished j WHERE j.number = ANY(%s) ORDER BY j.number FOR UPDATE
"""  # noqa: S608
_LOCK_ACTIVE = f"""
SELECT j.number, j.topic, t.queue, coalesce(j.max_retries, q.max_retries) AS max_retries,
    clock_timestamp() AS now
FROM {FROM_UNFINISHED} WHERE j.number = ANY(%s) AND j.state = 'ACTIVE'
ORDER BY j.number FOR UPDATE OF j
"""  # noqa: S608
