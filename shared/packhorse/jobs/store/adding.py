"""Giving jobs, in the caller's own transaction; a topic and an id are one job.

All functions are called in a READ COMMITTED transaction as the bookkeeper; the jobs are there for
others when it commits.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from psycopg import Connection

from packhorse.errors import Permanent, Transient
from packhorse.jobs.event_store import record
from packhorse.jobs.job import Job, JobState
from packhorse.jobs.names import (
    MAX_NAME,
    require_id,
    require_properties,
    require_topic,
)
from packhorse.jobs.store.again import reactivate, requeue
from packhorse.jobs.store.given import (
    NewJob,
    finished_of,
    forget,
    insert,
    lock_ids,
    read_jobs,
    renew_properties,
)
from packhorse.jobs.store.notifications import ADDED, notification
from packhorse.jobs.store.queues import learn_topics, notify_workers

MIN_PRIORITY, MAX_PRIORITY = -100, 100
MOST_RETRIES = 1_000_000
LONGEST_DELAY = timedelta(days=3660)
_LAST_YEAR = 9000
"""Later times are refused: each has to be a `datetime` in every time zone."""
_TRIES = 10
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)


class InvalidJob(Permanent):
    """A job that can't be given like that; the text says why."""


class JobsBusy(Transient):
    """Others give and forget the same job all the time."""


class AddResult(StrEnum):
    """What came of giving a job."""

    ADDED = "ADDED"
    EXISTING = "EXISTING"
    """Another application has given it (or nobody in particular), so nothing was changed."""
    UPDATED = "UPDATED"
    """It was QUEUED; it has the new properties."""
    REACTIVATED = "REACTIVATED"
    """It was finished, and is QUEUED again, as it was given now; or ACTIVE, and will run once more
    with the new properties."""


@dataclass(frozen=True, slots=True)
class AddedJob:
    """The job, and what came of giving it."""

    job: Job
    verdict: AddResult


def add_job(connection: Connection, application: str, job: NewJob) -> AddedJob:
    """Give a job; see `add_jobs`."""
    return add_jobs(connection, application, [job])[0]


def add_jobs(connection: Connection, application: str, jobs: Sequence[NewJob]) -> list[AddedJob]:
    """Give jobs; return what came of each, in the same order. Notifies ADDED for what is QUEUED.

    `application` "" never changes a job that is there. Raises `InvalidName`, `InvalidProperties`,
    `InvalidJob` before anything is written, `TooManyTopics`, and `JobsBusy` when others give and
    forget a job of the same id all the time.
    """
    _require_application(application)
    for job in jobs:
        _require_job(job)
    if not jobs:
        return []
    learn_topics(connection, (job.topic for job in jobs))
    lock_ids(connection, ((job.topic, job.id) for job in jobs))
    resolved: dict[int, tuple[int, AddResult]] = {}
    for _ in range(_TRIES):
        left = [place for place in range(len(jobs)) if place not in resolved]
        if not left:
            break
        resolved |= _resolve(connection, application, [(place, jobs[place]) for place in left])
    else:
        raise JobsBusy("a job of that topic and id comes and goes; try again")
    return _notified(connection, application, [resolved[place] for place in range(len(jobs))])


def requeue_finished(connection: Connection, numbers: Sequence[int]) -> list[Job]:
    """Make finished jobs QUEUED again under their numbers, their attempts counted anew.

    Returns those that are; others are not finished, or have been forgotten. Notifies ADDED.
    """
    keys = connection.execute(
        "SELECT topic, id FROM jobs.finished WHERE number = ANY(%s)", (list(numbers),)
    )
    lock_ids(connection, keys.fetchall())
    found = connection.execute(
        "SELECT number FROM jobs.finished WHERE number = ANY(%s) ORDER BY number FOR UPDATE",
        (list(numbers),),
    ).fetchall()
    again = [number for (number,) in found]
    requeue(connection, again)
    added = _notified(connection, "", [(number, AddResult.REACTIVATED) for number in again])
    return [one.job for one in added]


def require_read_committed(connection: Connection) -> None:
    """Raise `InvalidJob` in a transaction whose statements do not see what others commit."""
    [(level,)] = connection.execute("SELECT current_setting('transaction_isolation')").fetchall()
    if level in ("repeatable read", "serializable"):
        raise InvalidJob(
            f"the transaction is {level.upper()}; give jobs in one that is READ COMMITTED, for an "
            "older snapshot may not show that a topic is forgotten, or an id given, by now"
        )


Given = Sequence[tuple[int, NewJob]]
"""Jobs, each with its place among all that are given."""


def _resolve(
    connection: Connection, application: str, given: Given
) -> dict[int, tuple[int, AddResult]]:
    """Return number and verdict by place; without those that others have just moved.

    History is looked at before and after: what is finished meanwhile is there the second time.
    """
    identified = [(place, job) for place, job in given if job.id is not None]
    resolved = _from_history(connection, application, identified) if identified else {}
    rest = [(place, job) for place, job in given if place not in resolved]
    inserted = insert(connection, application, rest)
    conflicts = [(place, job) for place, job in rest if place not in inserted]
    if conflicts:
        resolved |= _from_unfinished(connection, application, conflicts)
    doubtful = {
        (job.topic, job.id): place for place, job in identified if inserted.get(place) is not None
    }
    if doubtful:
        for topic, id_, _, _ in finished_of(connection, list(doubtful)):
            forgotten = inserted.pop(doubtful[topic, id_])
            forget(connection, forgotten)
            # Given twice at once, the second is the first's job.
            resolved = {place: one for place, one in resolved.items() if one[0] != forgotten}
    return resolved | {place: (number, AddResult.ADDED) for place, number in inserted.items()}


def _from_history(
    connection: Connection, application: str, given: Given
) -> dict[int, tuple[int, AddResult]]:
    known = finished_of(connection, [(job.topic, job.id) for _, job in given])
    by_key: dict[tuple[str, str | None], tuple[int, str]] = {
        (topic, id_): (number, giver) for topic, id_, number, giver in known
    }
    resolved: dict[int, tuple[int, AddResult]] = {}
    again: dict[int, NewJob] = {}
    for place, job in given:
        if (job.topic, job.id) in by_key:
            number, giver = by_key[job.topic, job.id]
            same = bool(application) and giver == application
            resolved[place] = (number, AddResult.REACTIVATED if same else AddResult.EXISTING)
            if same:
                again[number] = job
    if again:
        reactivate(connection, again)
    return resolved


def _from_unfinished(
    connection: Connection, application: str, given: Given
) -> dict[int, tuple[int, AddResult]]:
    renewed = renew_properties(connection, application, given)
    return {place: (number, _VERDICTS[state]) for place, (number, state) in renewed.items()}


_VERDICTS = {
    "QUEUED": AddResult.UPDATED,
    "ACTIVE": AddResult.REACTIVATED,
    None: AddResult.EXISTING,
}


def _notified(
    connection: Connection, application: str, resolved: Sequence[tuple[int, AddResult]]
) -> list[AddedJob]:
    """Return the jobs as they are now, and notify of those that are new in the queue."""
    jobs = read_jobs(connection, [number for number, _ in resolved])
    added = [AddedJob(jobs[number], verdict) for number, verdict in resolved]
    fresh = {
        one.job.number: one.job
        for one in added
        if one.job.state is JobState.QUEUED
        and one.verdict in (AddResult.ADDED, AddResult.REACTIVATED)
    }
    if fresh:
        record(connection, [notification(ADDED, job, application) for job in fresh.values()])
        notify_workers(connection)
    return added


def _require_application(application: str) -> None:
    if len(application) > MAX_NAME or not (application.isprintable() or not application):
        raise InvalidJob(f"an application has at most {MAX_NAME} printable characters")


def _require_job(job: NewJob) -> None:
    require_topic(job.topic)
    require_properties(job.properties)
    for text in (job.id, job.only_on, job.schedule):
        if text is not None:
            require_id(text)
    if not MIN_PRIORITY <= job.priority <= MAX_PRIORITY:
        raise InvalidJob(f"a priority is {MIN_PRIORITY} to {MAX_PRIORITY}, not {job.priority}")
    if job.max_retries is not None and not -1 <= job.max_retries <= MOST_RETRIES:
        raise InvalidJob(f"max_retries is -1 (without end), or 0 to {MOST_RETRIES}")
    if job.traceparent is not None and not _TRACEPARENT.fullmatch(job.traceparent):
        raise InvalidJob("a traceparent is one of W3C's Trace Context")
    _require_time(job)


def _require_time(job: NewJob) -> None:
    if job.ready_at is not None and job.delay is not None:
        raise InvalidJob("a job has a ready_at or a delay, not both")
    if job.ready_at is not None and job.ready_at.tzinfo is None:
        raise InvalidJob("ready_at needs a time zone")
    if job.ready_at is not None and job.ready_at.year >= _LAST_YEAR:
        raise InvalidJob(f"ready_at is before the year {_LAST_YEAR}")
    if job.delay is not None and not timedelta(0) <= job.delay <= LONGEST_DELAY:
        raise InvalidJob(f"a delay is 0 to {LONGEST_DELAY.days} days")
