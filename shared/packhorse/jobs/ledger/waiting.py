"""Topics whose jobs wait because no live instance, or not the one that may, has a consumer."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from psycopg import Connection

from packhorse.jobs.doers import Doers, is_consumed
from packhorse.jobs.ledger.named import named_with_topics

MOST_COUNTED = 1_000
"""Jobs of one topic that are counted; where there are more, this is the number."""
MOST_NAMED = 10_000
"""Pairs of a topic and an `only_on` that are looked at."""


@dataclass(frozen=True, slots=True)
class Unconsumed:
    """A topic that nobody does, or not the one instance that may, and what waits."""

    topic: str
    queue: str
    only_on: str
    """The instance, or `LEADER`, that alone may do these; "": nobody does any of the topic."""
    waiting: int
    """Jobs that could begin now, at most `MOST_COUNTED`."""
    since: datetime
    """When the first of them could have begun."""


def unconsumed(connection: Connection, doers: Doers) -> tuple[Unconsumed, ...]:
    """Return what jobs wait for that could begin if somebody did them, by topic and `only_on`.

    Of a topic that somebody does: the `only_on` of jobs that this one may not do. Called in a
    transaction as the bookkeeper; costs a look at an index a topic, and one a pair.
    """
    rows = connection.execute("SELECT topic, queue FROM jobs.topic ORDER BY topic").fetchall()
    nobody = [(topic, queue) for topic, queue in rows if not is_consumed(topic, None, doers)]
    found = [*_of_topics(connection, nobody), *_of_doers(connection, doers)]
    return tuple(sorted(found, key=lambda one: (one.topic, one.only_on)))


def _of_topics(connection: Connection, missed: Sequence[tuple[str, str]]) -> list[Unconsumed]:
    found = connection.execute(
        """
        SELECT given.topic, given.queue, '', counted.jobs, first.ready_at
        FROM unnest(%s::text[], %s::text[]) AS given (topic, queue)
        CROSS JOIN LATERAL (
            SELECT ready_at FROM jobs.job j
            WHERE j.topic = given.topic AND state = 'QUEUED' AND (NOT delayed OR attempts > 0)
            ORDER BY turn LIMIT 1) AS first
        CROSS JOIN LATERAL (
            SELECT count(*) AS jobs FROM (
                SELECT FROM jobs.job j
                WHERE j.topic = given.topic AND state = 'QUEUED' AND NOT delayed LIMIT %s
            ) AS few) AS counted
        WHERE counted.jobs > 0
        """,
        ([topic for topic, _ in missed], [queue for _, queue in missed], MOST_COUNTED),
    )
    return [Unconsumed(*row) for row in found]


def _of_doers(connection: Connection, doers: Doers) -> list[Unconsumed]:
    """Return what waits for one doer; what is merely reserved for its creator does not."""
    missed = [
        (topic, only_on)
        for topic, only_on in named_with_topics(connection, MOST_NAMED)
        if is_consumed(topic, None, doers) and not is_consumed(topic, only_on, doers)
    ]
    found = connection.execute(
        """
        SELECT given.topic, t.queue, given.only_on, counted.jobs, counted.since
        FROM unnest(%s::text[], %s::text[]) AS given (topic, only_on)
        JOIN jobs.topic t ON t.topic = given.topic COLLATE "C"
        CROSS JOIN LATERAL (
            SELECT count(*) AS jobs, min(ready_at) AS since FROM (
                SELECT ready_at FROM jobs.job j
                WHERE j.topic = given.topic COLLATE "C" AND j.only_on = given.only_on COLLATE "C"
                    AND state = 'QUEUED' AND NOT delayed AND open_at IS NULL LIMIT %s
            ) AS few) AS counted
        WHERE counted.jobs > 0
        """,
        ([topic for topic, _ in missed], [only_on for _, only_on in missed], MOST_COUNTED),
    )
    return [Unconsumed(*row) for row in found]
