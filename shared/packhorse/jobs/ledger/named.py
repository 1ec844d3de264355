"""The instances, or the leader, that waiting jobs name as the only ones to do them.

Functions are called in a transaction as the bookkeeper, and cost a few probes of an index for each
topic.
"""

from psycopg import Connection

from packhorse.jobs.store.given import LEADER

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
