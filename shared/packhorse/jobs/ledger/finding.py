"""Finding jobs, unfinished and in history. Every function works as the bookkeeper (`act_as`)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from psycopg import Connection, errors, sql

from packhorse.errors import Permanent
from packhorse.jobs.filters import EVERYTHING, JobFilter
from packhorse.jobs.job import Job, JobState, UnknownJob
from packhorse.jobs.ledger.pages import (
    HistoryStart,
    JobPage,
    Place,
    Unfinished,
    place_behind,
    read_cursor,
    require_limit,
    write_cursor,
)
from packhorse.jobs.store.rows import FINISHED, FROM_UNFINISHED, UNFINISHED, job_cursor, job_of

if TYPE_CHECKING:
    from sqlalchemy import Select

_UNFINISHED = sql.SQL(f"SELECT {UNFINISHED} FROM {FROM_UNFINISHED}")  # noqa: S608  # constants
_FINISHED = sql.SQL(f"SELECT {FINISHED} FROM jobs.finished j")  # noqa: S608  # constants
_BOTH = sql.SQL("{} WHERE {} UNION ALL {} WHERE {}")

PATIENCE_MS = 10_000
"""How long the database may look for jobs; properties have no index."""


class FilterTooWide(Permanent):
    """The database would have to look at too many jobs; the text says what helps."""


def get(connection: Connection, number: int) -> Job:
    """Return a job. Raises `UnknownJob`."""
    found = _one(connection, sql.SQL("j.number = %s"), [number])
    if found is None:
        raise UnknownJob(f"there is no job {number}; history may have been pruned")
    return found


def hold(connection: Connection, number: int) -> None:
    """Let nobody change a job until the transaction ends; a finished one stays as it is."""
    connection.execute("SELECT FROM jobs.job WHERE number = %s FOR UPDATE", (number,))


def get_by_id(connection: Connection, topic: str, id_: str) -> Job:
    """Return the job that a topic and a caller's id name. Raises `UnknownJob`."""
    found = _one(connection, sql.SQL("j.topic = %s AND j.id = %s"), [topic, id_])
    if found is None:
        raise UnknownJob(f"there is no job {id_[:80]!r} of {topic[:80]!r}")
    return found


def find(
    connection: Connection,
    wanted: JobFilter = EVERYTHING,
    *,
    after: str | None = None,
    limit: int = 100,
) -> JobPage:
    """Return a page of the jobs that a filter means: unfinished oldest first, then newest history.

    A job that changes its state between two pages may be in both, or in none. In one page none
    is twice where the transaction is REPEATABLE READ. Raises `InvalidPage`, `FilterTooWide`.
    """
    place, limit = read_cursor(after), require_limit(limit)
    with _patient(connection):
        return find_from(connection, wanted, place, limit)


def find_from(connection: Connection, wanted: JobFilter, place: Place, limit: int) -> JobPage:
    """Return a page that begins at a place."""
    states = wanted.group.states
    jobs: list[Job] = []
    if isinstance(place, Unfinished):
        jobs = oldest(connection, wanted, states, place, limit + 1)
        if len(jobs) > limit:
            return JobPage(tuple(jobs[:limit]), write_cursor(place_behind(jobs[limit - 1])))
        place = HistoryStart()
    jobs += newest(connection, wanted, states, place, limit + 1 - len(jobs))
    if len(jobs) <= limit:
        return JobPage(tuple(jobs), None)
    last = jobs[limit - 1]
    following = HistoryStart() if last.finished_at is None else place_behind(last)
    return JobPage(tuple(jobs[:limit]), write_cursor(following))


def oldest(
    connection: Connection,
    wanted: JobFilter,
    states: Sequence[JobState],
    place: Unfinished,
    limit: int,
) -> list[Job]:
    """Return the unfinished jobs in some of these states behind a place, the oldest first."""
    if all(state.final for state in states):
        return []
    from packhorse.jobs.ledger import search

    return _jobs(connection, search.oldest(wanted, states, place, limit))


def newest(
    connection: Connection,
    wanted: JobFilter,
    states: Sequence[JobState],
    place: HistoryStart,
    limit: int,
) -> list[Job]:
    """Return the jobs of history in some of these states behind a place, the newest first."""
    if not any(state.final for state in states):
        return []
    from packhorse.jobs.ledger import search

    return _jobs(connection, search.newest(wanted, states, place, limit))


def count(connection: Connection, wanted: JobFilter, states: Sequence[JobState], most: int) -> int:
    """Return how many jobs a filter means in some of these states; `most` where there are more.

    Raises `FilterTooWide`.
    """
    from packhorse.db.composed import composed
    from packhorse.jobs.ledger import search

    among = [state for state in wanted.group.states if state in states]
    found = 0
    with _patient(connection):
        for table in (search.UNFINISHED_JOBS, search.FINISHED_JOBS):
            query = composed(search.count(table, wanted, among, most - found))
            [(more,)] = connection.execute(*query).fetchall()
            found += more
    return found


@contextmanager
def _patient(connection: Connection) -> Iterator[None]:
    """Bound what every statement in the rest of the transaction may cost (R30)."""
    connection.execute("SELECT set_config('statement_timeout', %s, true)", (f"{PATIENCE_MS}ms",))
    try:
        yield
    except errors.QueryCanceled as error:
        raise FilterTooWide(
            "too many jobs would have to be looked at: name a topic, an id or a state besides"
        ) from error


def _one(connection: Connection, condition: sql.SQL, values: Sequence[Any]) -> Job | None:
    query = _BOTH.format(_UNFINISHED, condition, _FINISHED, condition)
    with job_cursor(connection) as cursor:
        row = cursor.execute(query, [*values, *values]).fetchone()
    return None if row is None else job_of(row)


def _jobs(connection: Connection, statement: "Select[Any]") -> list[Job]:
    from packhorse.db.composed import composed

    with job_cursor(connection) as cursor:
        return [job_of(row) for row in cursor.execute(*composed(statement))]
