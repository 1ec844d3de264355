"""Topics whose jobs wait because no live instance, or not the one that may, has a consumer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from psycopg import Connection

from packhorse.jobs.consumers import HandledTopics
from packhorse.jobs.store.given import LEADER

LiveConsumers = Mapping[str, HandledTopics]
"""What each instance of the own cluster does, by its id."""

_NAMED = """
WITH RECURSIVE named (topic, only_on) AS (
    SELECT topic, ''::text COLLATE "C" FROM jobs.topic
    UNION ALL
    SELECT named.topic, following.only_on FROM named CROSS JOIN LATERAL (
        SELECT j.only_on FROM jobs.job j
        WHERE j.topic = named.topic AND j.only_on > named.only_on
            AND j.state = 'QUEUED' AND NOT j.delayed
        ORDER BY j.only_on LIMIT 1) AS following
)
"""


def named_with_topics(connection: Connection, most: int) -> list[tuple[str, str]]:
    """Return topics and their `only_on`, `LEADER` too.

    At most so many pairs: of more, which ones is chance.
    """
    return connection.execute(
        f"{_NAMED} SELECT topic, only_on FROM named WHERE only_on <> '' LIMIT %s",  # noqa: S608
        (most,),
    ).fetchall()


def named_instances(connection: Connection) -> list[str]:
    """Return the instances that jobs of any topic wait for."""
    rows = connection.execute(
        f"{_NAMED} SELECT DISTINCT only_on FROM named WHERE only_on NOT IN ('', %s)",  # noqa: S608
        (LEADER,),
    )
    return [instance for (instance,) in rows]


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
    """The instance that alone may do these; "": nobody does any of the topic."""
    waiting: int
    """Jobs that could begin now, at most `MOST_COUNTED`."""
    since: datetime
    """When the first of them could have begun."""


def unconsumed(connection: Connection, live: LiveConsumers) -> tuple[Unconsumed, ...]:
    """Return what jobs wait for that could begin if somebody did them, by topic and `only_on`.

    Of a topic that somebody does: the `only_on` of jobs that this one may not do. Called in a
    transaction as the bookkeeper; costs a look at an index a topic, and one a pair.
    """
    rows = connection.execute("SELECT topic, queue FROM jobs.topic ORDER BY topic").fetchall()
    nobody = [(topic, queue) for topic, queue in rows if not _is_consumed(topic, None, live)]
    found = [*_of_topics(connection, nobody), *_of_allowed_workers(connection, live)]
    return tuple(sorted(found, key=lambda one: (one.topic, one.only_on)))


def _of_topics(connection: Connection, missed: Sequence[tuple[str, str]]) -> list[Unconsumed]:
    found = connection.execute(
        """
        SELECT given.topic, given.queue, '', counted.jobs, first.ready_at
        FROM unnest(%s::text[], %s::text[]) AS given (topic, queue)
        CROSS JOIN LATERAL (
            SELECT ready_at FROM jobs.job j
            WHERE j.topic = given.topic AND state = 'QUEUED' AND (NOT delayed OR attempts > 0)
                AND NOT delayed  -- beside the condition of the index
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


def _of_allowed_workers(connection: Connection, live: LiveConsumers) -> list[Unconsumed]:
    """Return what waits for the one instance that may do it.

    What is only reserved for its creator does not.
    """
    missed = [
        (topic, only_on)
        for topic, only_on in named_with_topics(connection, MOST_NAMED)
        if _is_consumed(topic, None, live) and not _is_consumed(topic, only_on, live)
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


def _is_consumed(topic: str, only_on: str | None, live: LiveConsumers) -> bool:
    """Return whether somebody does jobs of a topic; with `only_on`, whether that one does.

    Whoever does them is `LEADER` as well, if no other one is.
    """
    if only_on and only_on != LEADER:
        return only_on in live and live[only_on].covers(topic)
    return any(handled_topics.covers(topic) for handled_topics in live.values())
