"""Topics whose jobs wait because no live instance has a consumer for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from psycopg import Connection

from packhorse.jobs.consumers import Reach

MOST_COUNTED = 1_000
"""Jobs of one topic that are counted; where there are more, this is the number."""


@dataclass(frozen=True, slots=True)
class Unconsumed:
    """A topic that nobody does, and what waits."""

    topic: str
    queue: str
    waiting: int
    """Jobs that could begin now, at most `MOST_COUNTED`."""
    since: datetime
    """When the first of them could have begun."""


def is_consumed(topic: str, reaches: Sequence[Reach]) -> bool:
    """Tell whether some instance does the jobs of a topic, by what the instances announce."""
    return any(reach.covers(topic) for reach in reaches)


def unconsumed(connection: Connection, reaches: Sequence[Reach]) -> tuple[Unconsumed, ...]:
    """Return the topics with jobs that could begin if somebody did them, by topic.

    Called in a transaction as the bookkeeper; costs one look at an index a topic.
    """
    rows = connection.execute("SELECT topic, queue FROM jobs.topic ORDER BY topic").fetchall()
    missed = [(topic, queue) for topic, queue in rows if not is_consumed(topic, reaches)]
    found = connection.execute(
        """
        SELECT given.topic, given.queue, counted.jobs, first.ready_at
        FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY AS given (topic, queue, place)
        CROSS JOIN LATERAL (
            SELECT ready_at FROM jobs.job j
            WHERE j.topic = given.topic AND state = 'QUEUED' AND (NOT delayed OR attempts > 0)
            ORDER BY turn LIMIT 1) AS first
        CROSS JOIN LATERAL (
            SELECT count(*) AS jobs FROM (
                SELECT FROM jobs.job j
                WHERE j.topic = given.topic AND state = 'QUEUED' AND NOT delayed LIMIT %s
            ) AS few) AS counted
        WHERE counted.jobs > 0 ORDER BY place
        """,
        ([topic for topic, _ in missed], [queue for _, queue in missed], MOST_COUNTED),
    )
    return tuple(Unconsumed(*row) for row in found)
