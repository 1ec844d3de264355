"""Forgetting topics that nothing uses, so that whoever uses many is not refused for ever (R30).

Used is a topic that has an unfinished job or history, that something was done for within a day, or
that a consumer names; one that a pattern merely covers (`images/**`) is not used by that. It comes
back with its next job.
"""

from collections.abc import Callable, Collection

from psycopg import Connection

from packhorse.db.transactions import Connect, writing
from packhorse.jobs.store.queues import TOPIC_LOCK, locks_of, share_layout
from packhorse.jobs.store.statistics import LAST_USED, fold_topics, keep_unfolded

BATCH = 500
"""Topics that one transaction forgets at most."""
IDLE_S = 86_400.0
"""Seconds for which nothing was done."""


def forget_topics(
    connect: Connect,
    patterns: Collection[str] = (),
    *,
    idle_s: float = IDLE_S,
    batch: int = BATCH,
    is_enough: Callable[[], bool] = lambda: False,
) -> int:
    """Forget all that nothing uses, `batch` in each transaction; return how many.

    `patterns` are those of the consumers. Between two transactions `is_enough` is asked. A topic
    that a transaction gives jobs for is left for the next time, and nobody waits for that. What
    was done for forgotten topics stays in the figures of their queues.
    """
    forgotten, after = 0, ""
    while True:
        with writing(connect) as connection:
            found = _unused(connection, patterns, idle_s, after, batch)
            forgotten += _forget(connection, found, patterns, idle_s)
        if len(found) < batch or is_enough():
            return forgotten
        after = found[-1]


# Each question of jobs and history is one look at an index, whatever the table's statistics say.
_NOTHING_USES = """
NOT EXISTS (SELECT FROM recent r WHERE r.topic = t.topic)
    AND t.topic <> ALL(%(patterns)s::text[])
    AND NOT EXISTS (SELECT FROM jobs.content_watch w WHERE w.job_topic = t.topic)
    AND (SELECT 1 FROM jobs.job WHERE topic = t.topic AND state = 'ACTIVE' LIMIT 1) IS NULL
    AND (SELECT 1 FROM jobs.job
        WHERE topic = t.topic AND state = 'QUEUED' AND NOT delayed LIMIT 1) IS NULL
    AND (SELECT 1 FROM jobs.job
        WHERE topic = t.topic AND state = 'QUEUED' AND delayed LIMIT 1) IS NULL
    AND (SELECT 1 FROM jobs.finished WHERE topic = t.topic LIMIT 1) IS NULL
"""
_RECENT = f"""
WITH recent AS MATERIALIZED (
    SELECT DISTINCT s.topic FROM jobs.statistics s
    WHERE {LAST_USED} >= clock_timestamp() - make_interval(secs => %(idle_s)s)
)
"""  # noqa: S608
_FIND = f"""{_RECENT}
SELECT t.topic FROM jobs.topic t WHERE t.topic > %(after)s AND {_NOTHING_USES}
ORDER BY t.topic LIMIT %(batch)s
"""  # noqa: S608
_FORGET = f"""{_RECENT}
DELETE FROM jobs.topic t WHERE t.topic = ANY(%(topics)s::text[]) AND {_NOTHING_USES}
RETURNING t.topic
"""  # noqa: S608


def _unused(
    connection: Connection, patterns: Collection[str], idle_s: float, after: str, batch: int
) -> list[str]:
    connection.execute("SELECT set_config('enable_seqscan', 'off', true)")
    given = {"patterns": list(patterns), "idle_s": idle_s, "after": after, "batch": batch}
    return [topic for (topic,) in connection.execute(_FIND.encode(), given)]


def _forget(
    connection: Connection, topics: Collection[str], patterns: Collection[str], idle_s: float
) -> int:
    """Forget those that nothing uses still, once nobody can be giving jobs for them.

    The statement that looks once more begins after the locks are there: it sees every job that was
    given before, and who gives one now waits until the topic is gone, and learns it anew.
    """
    keep_unfolded(connection)  # may wait, so before all other locks
    share_layout(connection)
    taken = connection.execute(
        "SELECT number FROM unnest(%s::integer[]) AS l (number) "
        "WHERE pg_try_advisory_xact_lock(%s, number)",
        (locks_of(topics), TOPIC_LOCK),
    )
    locks = {number for (number,) in taken}
    chosen = [topic for topic in topics if locks.issuperset(locks_of([topic]))]
    given = {"patterns": list(patterns), "idle_s": idle_s, "topics": chosen}
    gone = [topic for (topic,) in connection.execute(_FORGET.encode(), given)]
    fold_topics(connection, gone)
    return len(gone)
