"""Stopping, retrying or removing all jobs that a filter means, a bounded batch a transaction."""

from dataclasses import dataclass

from psycopg import Connection

from packhorse.jobs.filters import JobFilter
from packhorse.jobs.job import Job
from packhorse.jobs.ledger.changing import Change, allowed_states, change_all
from packhorse.jobs.ledger.finding import newest, oldest
from packhorse.jobs.ledger.pages import (
    START,
    History,
    Place,
    Unfinished,
    place_behind,
    read_cursor,
    require_limit,
    write_cursor,
)
from packhorse.jobs.sessions import Connect, writing

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


def bulk(
    connect: Connect, what: Change, wanted: JobFilter, *, limit: int, after: str | None
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


def _first(what: Change) -> Place:
    return START if what is Change.STOP else History()


def _following(what: Change, place: Place) -> Place | None:
    """Return where the other kind of jobs begins, None behind the last.

    Unfinished jobs are removed after those of history: they become history by that, and would be
    found there and forgotten.
    """
    return START if what is Change.REMOVE and isinstance(place, History) else None


def _jobs(
    connection: Connection, what: Change, wanted: JobFilter, place: Place, size: int
) -> list[Job]:
    states = [state for state in wanted.group.states if state in allowed_states(what)]
    if isinstance(place, Unfinished):
        return oldest(connection, wanted, states, place, size)
    return newest(connection, wanted, states, place, size)
