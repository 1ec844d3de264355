"""Finished jobs that are to be done once more: somebody retries them, or gives them again.

Called in a READ COMMITTED transaction as the bookkeeper, with the jobs locked.
"""

from collections.abc import Mapping, Sequence

from psycopg import Connection

from packhorse.jobs.store.given import NewJob, columns_of


def requeue(connection: Connection, numbers: Sequence[int]) -> None:
    """Move finished jobs back to the unfinished ones as they were, last in their order."""
    _move(connection, dict.fromkeys(numbers, _AS_IT_WAS), given=False)


def reactivate(connection: Connection, given: Mapping[int, NewJob]) -> None:
    """Move finished jobs, by number, back to the unfinished ones as they were given again now.

    Of the first time they keep the number, who gave them and when, and what became of them.
    """
    _move(connection, given, given=True)


_AS_IT_WAS = NewJob("")


def _move(connection: Connection, jobs: Mapping[int, NewJob], *, given: bool) -> None:
    columns = columns_of([*jobs.values()])
    connection.execute(_MOVE, {**columns, "number": [*jobs], "given": given})


_MOVE = """
WITH again AS (
    SELECT a.*, c.now, greatest(c.now, a.at, c.now + make_interval(secs => a.delay_s)) AS due
    FROM unnest(%(number)s::bigint[], %(priority)s::integer[], %(properties)b::text[],
        %(ready_at)s::timestamptz[], %(delay_s)s::double precision[], %(only_on)b::text[],
        %(max_retries)s::integer[], %(schedule)b::text[], %(traceparent)b::text[])
        AS a (number, priority, properties, at, delay_s, only_on, max_retries, schedule,
            traceparent)
    CROSS JOIN (SELECT clock_timestamp() AS now) c
), gone AS (
    DELETE FROM jobs.finished f USING again a WHERE f.number = a.number RETURNING f.*
)
INSERT INTO jobs.job (number, turn, topic, id, priority, properties, application, created_at,
    ready_at, delayed, only_on, max_retries, schedule, traceparent, retry, epoch, past_attempts,
    log, extra)
SELECT g.number, nextval('jobs.number'), g.topic, g.id, s.priority, s.properties, g.application,
    g.created_at, a.due, a.due > a.now, s.only_on, s.max_retries, s.schedule, s.traceparent,
    NOT %(given)s AND g.attempts > 0 AND g.state <> 'SUCCEEDED', g.epoch + 1, g.past_attempts,
    g.log, g.extra
FROM gone g JOIN again a ON a.number = g.number CROSS JOIN LATERAL (
    SELECT a.priority, a.properties::jsonb AS properties, a.only_on, a.max_retries, a.schedule,
        a.traceparent WHERE %(given)s
    UNION ALL
    SELECT g.priority, g.properties, g.only_on, g.own_max_retries, g.schedule, g.traceparent
    WHERE NOT %(given)s) s
ORDER BY g.number
"""
