"""Jobs as they are given, and the statements that write them.

All functions are called in a READ COMMITTED transaction as the bookkeeper.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from zlib import crc32

import orjson
from psycopg import Connection

from packhorse.jobs.job import Job
from packhorse.jobs.store.rows import FINISHED, FROM_UNFINISHED, UNFINISHED, job_cursor, job_of

PREFERENCE_S = 2.0
"""How long a queue that prefers the creating instance keeps a job for it."""
_ID_LOCK, _ID_LOCKS = 0x70686964, 4096
LEADER = "@leader"
"""As `only_on`: the first instance, in the cluster's order, that does the topic by then."""


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to be given."""

    topic: str
    properties: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None
    priority: int = 0
    """-100 to 100."""
    ready_at: datetime | None = None
    """With a time zone; not begun before. Excludes `delay`."""
    delay: timedelta | None = None
    """From now, by the database's clock."""
    only_on: str | None = None
    """An instance id, or `LEADER`."""
    max_retries: int | None = None
    """None: as its queue says."""
    schedule: str | None = None
    traceparent: str | None = None


def insert(
    connection: Connection, application: str, given: Sequence[tuple[int, NewJob]]
) -> dict[int, int]:
    """Write jobs that are given at places; return their numbers, without those that are there."""
    if not given:
        return {}
    rows = connection.execute(
        _INSERT,
        {
            "application": application,
            "preference_s": PREFERENCE_S,
            **columns_of([job for _, job in given]),
        },
    )
    numbers: dict[int, int] = dict(rows.fetchall())
    return {place: numbers[index] for index, (place, _) in enumerate(given) if index in numbers}


def columns_of(jobs: Sequence[NewJob]) -> dict[str, list[Any]]:
    """Return what the statements that write jobs take, a column each."""
    return {
        "topic": [job.topic for job in jobs],
        "id": [job.id for job in jobs],
        "priority": [job.priority for job in jobs],
        "properties": [as_json(job.properties) for job in jobs],
        "ready_at": [job.ready_at for job in jobs],
        "delay_s": [job.delay.total_seconds() if job.delay else None for job in jobs],
        "only_on": [job.only_on or "" for job in jobs],
        "max_retries": [job.max_retries for job in jobs],
        "schedule": [job.schedule for job in jobs],
        "traceparent": [job.traceparent for job in jobs],
    }


# A job is reserved for its creator only where that has a worker to do it.
_INSERT = """
WITH given AS MATERIALIZED (
    SELECT nextval('jobs.number') AS number, g.*, c.now,
        greatest(c.now, g.at, c.now + make_interval(secs => g.delay_s)) AS ready_at,
        g.only_on = '' AND q.prefer_creator AND q.type <> 'ORDERED' AND EXISTS (
            SELECT FROM jobs.worker w
            WHERE w.instance = %(application)s AND w.lease_until > c.now) AS reserved
    FROM unnest(%(topic)b::text[], %(id)b::text[], %(priority)s::integer[],
        %(properties)b::text[], %(ready_at)s::timestamptz[], %(delay_s)s::double precision[],
        %(only_on)b::text[], %(max_retries)s::integer[], %(schedule)b::text[],
        %(traceparent)b::text[]) WITH ORDINALITY
        AS g (topic, id, priority, properties, at, delay_s, only_on, max_retries, schedule,
            traceparent, place)
    JOIN jobs.topic t ON t.topic = g.topic COLLATE "C" JOIN jobs.queue q ON q.name = t.queue
    CROSS JOIN (SELECT clock_timestamp() AS now) c
    ORDER BY g.place
), numbered AS MATERIALIZED (
    -- The join may have another order than the caller; the turn is the caller's.
    SELECT g.*, n.number AS turn FROM (SELECT *, row_number() OVER (ORDER BY place) AS nth
        FROM given) g
    JOIN (SELECT number, row_number() OVER (ORDER BY number) AS nth FROM given) n USING (nth)
), written AS (
    INSERT INTO jobs.job (number, turn, topic, id, priority, properties, application, created_at,
        ready_at, delayed, only_on, open_at, max_retries, schedule, traceparent)
    SELECT turn, turn, topic, id, priority, properties::jsonb, %(application)s, now, ready_at,
        ready_at > now, CASE WHEN reserved THEN %(application)s ELSE only_on END,
        CASE WHEN reserved THEN ready_at + make_interval(secs => %(preference_s)s) END,
        max_retries, schedule, traceparent
    FROM numbered ORDER BY topic, id, turn  -- all wait for each other in this order
    ON CONFLICT (topic, id) WHERE id IS NOT NULL DO NOTHING
    RETURNING number
)
SELECT n.place::integer - 1, w.number FROM written w JOIN numbered n ON n.turn = w.number
"""


def lock_ids(connection: Connection, keys: Iterable[tuple[str, str | None]]) -> None:
    """Be the only one, until the end, who gives jobs of these topics and ids.

    Those without an id are left out. Few locks, taken in one order: a transaction that gives
    thousands of ids does not use up the server's locks, and no two wait for each other.
    """
    locks = {
        crc32(f"{topic}\0{id_}".encode()) % _ID_LOCKS for topic, id_ in keys if id_ is not None
    }
    if locks:
        connection.execute(
            "SELECT pg_advisory_xact_lock(%s, number) FROM unnest(%s::integer[]) AS l (number)",
            (_ID_LOCK, sorted(locks)),
        )


def finished_of(
    connection: Connection, keys: Iterable[tuple[str, str | None]]
) -> list[tuple[str, str, int, str]]:
    """Return topic, id, number and application of finished jobs, locked until the end."""
    topics, ids = zip(*sorted(set(keys), key=str), strict=True)
    return connection.execute(
        """
        SELECT f.topic, f.id, f.number, f.application FROM jobs.finished f
        JOIN unnest(%s::text[], %s::text[]) AS k (topic, id)
            ON f.topic = k.topic COLLATE "C" AND f.id = k.id COLLATE "C"
        WHERE f.id IS NOT NULL ORDER BY f.number FOR UPDATE OF f
        """,
        (list(topics), list(ids)),
    ).fetchall()


def forget(connection: Connection, number: int) -> None:
    """Take back what this transaction has just inserted."""
    connection.execute("DELETE FROM jobs.job WHERE number = %s", (number,))


def renew_properties(
    connection: Connection, application: str, given: Sequence[tuple[int, NewJob]]
) -> dict[int, tuple[int, str | None]]:
    """Give unfinished jobs of these ids the new properties, where the same application gave them.

    Returns by place the number, and the state if it was changed; without what is finished by now.
    """
    keys = {(job.topic, job.id) for _, job in given}
    found = {(row[0], row[1]): row for row in _lock_unfinished(connection, keys)}
    renewed: dict[int, tuple[int, str | None]] = {}
    for place, job in given:
        if (job.topic, job.id) in found:
            _, _, number, state, giver = found[job.topic, job.id]
            same = bool(application) and giver == application
            if same:
                _renew(connection, number, state, job.properties)
            renewed[place] = (number, state if same else None)
    return renewed


def _lock_unfinished(
    connection: Connection, keys: Iterable[tuple[str, str | None]]
) -> list[tuple[str, str | None, int, str, str]]:
    """Lock jobs in the order of their numbers, as whoever ends jobs does."""
    topics, ids = zip(*keys, strict=True)
    return connection.execute(
        """
        SELECT j.topic, j.id, j.number, j.state, j.application FROM jobs.job j
        JOIN unnest(%s::text[], %s::text[]) AS k (topic, id)
            ON j.topic = k.topic COLLATE "C" AND j.id = k.id COLLATE "C"
        WHERE j.id IS NOT NULL ORDER BY j.number FOR NO KEY UPDATE OF j
        """,
        (list(topics), list(ids)),
    ).fetchall()


def _renew(connection: Connection, number: int, state: str, properties: Mapping[str, Any]) -> None:
    column = "properties" if state == "QUEUED" else "again"
    connection.execute(
        f"UPDATE jobs.job SET {column} = %s::jsonb WHERE number = %s",  # noqa: S608
        (as_json(properties), number),
    )


def read_jobs(connection: Connection, numbers: Iterable[int]) -> dict[int, Job]:
    """Return jobs, unfinished or not, by number."""
    wanted = list(set(numbers))
    with job_cursor(connection) as cursor:
        cursor.execute(_READ, {"numbers": wanted})
        return {row["number"]: job_of(row) for row in cursor}


_READ = f"""
SELECT {UNFINISHED} FROM {FROM_UNFINISHED} WHERE j.number = ANY(%(numbers)s)
UNION ALL
SELECT {FINISHED} FROM jobs.finished j WHERE j.number = ANY(%(numbers)s)
"""  # noqa: S608


def as_json(properties: Mapping[str, Any]) -> str:
    """Return properties as JSON text."""
    return orjson.dumps(dict(properties)).decode()
