"""Stopping, retrying and removing jobs, one or many, wherever they are.

Functions with a connection are called in a READ COMMITTED transaction as the bookkeeper. What
`change_all` does not find in a state that allows it, it passes over.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from psycopg import Connection

from packhorse.db.transactions import Connect, writing
from packhorse.jobs.event_store import record
from packhorse.jobs.filters import JobFilter
from packhorse.jobs.job import FINAL_STATES, Job, JobState, UnknownJob, WrongState
from packhorse.jobs.ledger.finding import get, newest, oldest
from packhorse.jobs.ledger.pages import (
    START,
    HistoryStart,
    Place,
    Unfinished,
    place_behind,
    read_cursor,
    require_limit,
    write_cursor,
)
from packhorse.jobs.store.adding import requeue_finished
from packhorse.jobs.store.finishing import end_waiting, request_stop
from packhorse.jobs.store.notifications import REMOVED, notification
from packhorse.jobs.store.rows import FINISHED, job_cursor, job_of

_TRIES = 5
"""Between a look at a job and its change the job may go on; it does so a few times in its life."""
_STOPPED, _REMOVED = "stopped on request", "removed on request"


class JobChange(StrEnum):
    """What can be done to a job, or to all that a filter means."""

    STOP = "STOP"
    """End it when it is QUEUED; ask its consumer to when it is ACTIVE."""
    RETRY = "RETRY"
    """Make it QUEUED again, from history."""
    REMOVE = "REMOVE"
    """End it as DROPPED when it is QUEUED; forget it when it is history."""
    ABANDON = "ABANDON"
    """As REMOVE, and when it is ACTIVE take it from whoever works on it."""


_ALLOWED = {
    JobChange.STOP: (JobState.QUEUED, JobState.ACTIVE),
    JobChange.RETRY: FINAL_STATES,
    JobChange.REMOVE: (JobState.QUEUED, *FINAL_STATES),
    JobChange.ABANDON: tuple(JobState),
}


def allowed_states(what: JobChange | None) -> tuple[JobState, ...]:
    """Return the states in which a job can be changed so; all of them for None."""
    return tuple(JobState) if what is None else _ALLOWED[what]


def change(connection: Connection, what: JobChange, number: int) -> Job:
    """Change one job; return it as it is then, or as it was when it is forgotten.

    Raises `UnknownJob`, `WrongState`.
    """
    for _ in range(_TRIES):
        before = get(connection, number)
        if before.state not in allowed_states(what):
            raise WrongState(_refusal(what, before))
        if change_all(connection, what, [number]):
            try:
                return get(connection, number)
            except UnknownJob:  # forgotten, also one that ended since the look at it
                return before
    raise WrongState(f"job {number} changes its state all the time; try again")


def change_all(connection: Connection, what: JobChange, numbers: Sequence[int]) -> set[int]:
    """Change jobs; return the numbers of those whose state allowed it."""
    numbers = sorted(numbers)  # everybody locks in this order
    if what is JobChange.STOP:
        stopped = end_waiting(connection, numbers, JobState.STOPPED, _STOPPED)
        done = {job.number for job in stopped}
        return done | set(request_stop(connection, _rest(numbers, done)))
    if what is JobChange.RETRY:
        return {job.number for job in requeue_finished(connection, numbers)}
    # History first: what is ended as DROPPED here must not be forgotten by the next line.
    done = forget_finished(connection, numbers, _REMOVED)
    rest = _rest(numbers, done)
    even_active = what is JobChange.ABANDON
    ended = end_waiting(connection, rest, JobState.DROPPED, _REMOVED, even_active=even_active)
    return done | {job.number for job in ended}


def _rest(numbers: Sequence[int], done: set[int]) -> list[int]:
    return [number for number in numbers if number not in done]


def _refusal(what: JobChange, job: Job) -> str:
    if what is JobChange.REMOVE:
        return f"job {job.number} is ACTIVE: stop it first, and remove it once it has ended"
    verb = "stopped" if what is JobChange.STOP else "retried"
    only = "QUEUED or ACTIVE" if what is JobChange.STOP else "finished"
    return f"job {job.number} is {job.state}: only a job that is {only} can be {verb}"


MAX_BULK = 100_000
"""Jobs that one call looks at."""
_BATCH = 500


@dataclass(frozen=True, slots=True)
class BulkResult:
    """What came of a bulk change."""

    changed: int
    passed_over: int
    """Jobs whose state was another one by then."""
    after: str | None
    """Where to go on, the limit being reached; None: all is done."""


def change_bulk(
    connect: Connect, what: JobChange, wanted: JobFilter, *, limit: int, after: str | None
) -> BulkResult:
    """Change the jobs that a filter means, at most `limit` of them, from a cursor on.

    Nothing is begun twice: a job that a batch has changed is behind the next one's cursor. What
    was changed stays so when a later batch fails. Raises `InvalidPage`.
    """
    require_limit(limit, MAX_BULK)
    place: Place | None = _first(what) if after is None else read_cursor(after)
    seen = changed = 0
    while place is not None and seen < limit:
        size = min(_BATCH, limit - seen)
        with writing(connect) as connection:
            jobs = _jobs(connection, what, wanted, place, size)
            changed += len(change_all(connection, what, [job.number for job in jobs]))
        seen += len(jobs)
        place = place_behind(jobs[-1]) if len(jobs) == size else _following(what, place)
    return BulkResult(changed, seen - changed, None if place is None else write_cursor(place))


def _first(what: JobChange) -> Place:
    return START if what is JobChange.STOP else HistoryStart()


def _following(what: JobChange, place: Place) -> Place | None:
    """Return where the other kind of jobs begins, None behind the last.

    Unfinished jobs are removed after those of history: they become history by that, and would be
    found there and forgotten.
    """
    return START if what is JobChange.REMOVE and isinstance(place, HistoryStart) else None


def _jobs(
    connection: Connection, what: JobChange, wanted: JobFilter, place: Place, size: int
) -> list[Job]:
    states = [state for state in wanted.group.states if state in allowed_states(what)]
    if isinstance(place, Unfinished):
        return oldest(connection, wanted, states, place, size)
    return newest(connection, wanted, states, place, size)


def forget_finished(connection: Connection, numbers: Sequence[int], reason: str) -> set[int]:
    """Forget jobs of history, and that their ids were used; return which, and notify REMOVED."""
    with job_cursor(connection) as cursor:
        cursor.execute(_LOCK_FINISHED, (list(numbers),))
        jobs = [job_of(row) for row in cursor]
    found = [job.number for job in jobs]
    connection.execute("DELETE FROM jobs.finished WHERE number = ANY(%s)", (found,))
    record(connection, [notification(REMOVED, job, "", reason) for job in jobs])
    return set(found)


_LOCK_FINISHED = f"""
SELECT {FINISHED} FROM jobs.finished j WHERE j.number = ANY(%s) ORDER BY j.number FOR UPDATE
"""  # noqa: S608
