"""The statements that claim jobs.

They go through indexes whatever the statistics say: a table that was empty when it was looked at
last may have a million rows, and a plan for the one is a catastrophe for the other.
"""

from packhorse.jobs.queue import QueueType
from packhorse.jobs.store.given import LEADER
from packhorse.jobs.store.queues import LAYOUT_LOCK
from packhorse.jobs.store.rows import UNFINISHED

OTHERS, MARGIN = 2, 16
"""So many more jobs are looked at than are wanted, since others may claim them at the moment."""

USE_INDEXES = """
    set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
    set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
    set_config('enable_sort', 'off', true), set_config('join_collapse_limit', '1', true),
    set_config('plan_cache_mode', 'force_generic_plan', true)
"""

PREPARE = f"SELECT pg_advisory_xact_lock_shared({LAYOUT_LOCK}), {USE_INDEXES}"

PROMOTED = 100
PROMOTE = f"""
UPDATE jobs.job j SET delayed = false FROM (
    SELECT d.number FROM unnest(%(topics)s::text[]) AS w (topic) CROSS JOIN LATERAL (
        SELECT number FROM jobs.job
        WHERE topic = w.topic COLLATE "C" AND state = 'QUEUED' AND delayed
            AND ready_at <= (SELECT clock_timestamp())
        ORDER BY ready_at LIMIT {PROMOTED} FOR NO KEY UPDATE SKIP LOCKED) d
) due WHERE j.number = due.number
"""  # noqa: S608
"""What was delayed until now may be begun, at most so many jobs of a topic."""

OPEN = """
UPDATE jobs.job j SET only_on = '', open_at = NULL FROM (
    SELECT d.number FROM unnest(%(topics)s::text[]) AS w (topic) CROSS JOIN LATERAL (
        SELECT number FROM jobs.job
        WHERE topic = w.topic COLLATE "C" AND state = 'QUEUED' AND open_at IS NOT NULL
            AND open_at <= (SELECT clock_timestamp())
        ORDER BY open_at LIMIT 100 FOR NO KEY UPDATE SKIP LOCKED) d
) due WHERE j.number = due.number
"""
"""What was reserved for its creator until now is everybody's."""

ARE_WAITING = """
SELECT EXISTS (SELECT FROM unnest(%(topics)s::text[]) AS w (topic) CROSS JOIN LATERAL (
    (SELECT FROM jobs.job WHERE topic = w.topic COLLATE "C" AND state = 'QUEUED' AND NOT delayed
        LIMIT 1)
    UNION ALL
    (SELECT FROM jobs.job WHERE topic = w.topic COLLATE "C" AND state = 'QUEUED' AND delayed
        LIMIT 1)) j)
"""

_ACTIVATE = f"""
UPDATE jobs.job j SET state = 'ACTIVE', runtime_id = %(runtime_id)s, instance = %(instance)s,
    epoch = j.epoch + 1, attempts = j.attempts + 1, started_at = clock_timestamp(),
    progress = '{{}}', only_on = CASE WHEN j.open_at IS NULL THEN j.only_on ELSE '' END,
    open_at = NULL
FROM picked p, jobs.topic t, jobs.queue q
WHERE j.number = p.number AND j.state = 'QUEUED' AND t.topic = j.topic AND q.name = t.queue
RETURNING {UNFINISHED}, j.runtime_id, q.timeout_s, p.place
"""  # noqa: S608

_LEASED = """
EXISTS (SELECT FROM jobs.worker w
    WHERE w.runtime_id = %(runtime_id)s AND w.lease_until > clock_timestamp())
"""

_WAITING = "j.state = 'QUEUED' AND NOT j.delayed"


_PLACE = f"""
    SELECT t.topic, o.only_on
    FROM jobs.queue q JOIN jobs.topic t ON t.queue = q.name
    CROSS JOIN unnest(%(places_for)s::text[]) AS o (only_on)
    WHERE q.name = %(queue)s AND q.type <> 'ORDERED' AND NOT q.suspended
        AND t.topic = ANY(%(topics)s) AND {_LEASED}
        AND (o.only_on <> '{LEADER}' OR t.topic = ANY(%(led)s))
"""  # noqa: S608
"""The topics that this instance may do jobs of now, and where these jobs may be done."""


def _unordered(heads: str, order: str, nth: str = "") -> str:
    """Return the statement; `heads` says which topics may have the next jobs, `order` which go.

    The candidates are found without locks and locked in their order, until there are enough.
    """
    return f"""
WITH place AS MATERIALIZED ({_PLACE}), head AS MATERIALIZED (
    SELECT p.topic, p.only_on FROM place p CROSS JOIN LATERAL (
        SELECT j.priority, j.turn FROM jobs.job j
        WHERE j.topic = p.topic AND j.only_on = p.only_on COLLATE "C" AND {_WAITING}
        ORDER BY j.priority DESC, j.turn LIMIT 1) h
    ORDER BY {heads} LIMIT %(many)s
), candidate AS MATERIALIZED (
    SELECT c.number, row_number() OVER (ORDER BY {order}) AS place FROM (
        SELECT c.*{nth} FROM head h CROSS JOIN LATERAL (
            SELECT j.number, j.topic, j.priority, j.turn FROM jobs.job j
            WHERE j.topic = h.topic AND j.only_on = h.only_on COLLATE "C" AND {_WAITING}
            ORDER BY j.priority DESC, j.turn LIMIT %(many)s) c
    ) c ORDER BY {order} LIMIT %(many)s
), picked AS MATERIALIZED (
    SELECT j.number, c.place FROM candidate c JOIN jobs.job j ON j.number = c.number
    WHERE {_WAITING} ORDER BY c.place LIMIT %(places)s FOR UPDATE OF j SKIP LOCKED
)
{_ACTIVATE}"""  # noqa: S608


OF_TYPE = {
    QueueType.UNORDERED: _unordered("h.priority DESC, h.turn", "c.priority DESC, c.turn"),
    QueueType.TOPIC_ROUND_ROBIN: _unordered(
        "p.topic <= %(turn)s, p.topic",
        "c.nth, c.topic <= %(turn)s, c.topic",
        ", row_number() OVER (PARTITION BY c.topic ORDER BY c.priority DESC, c.turn) AS nth",
    ),
}
"""Claims from one queue, by its type."""

HEADS = f"""
SELECT q.name AS queue, h.number, h.turn AS place
FROM jobs.queue q CROSS JOIN LATERAL (
    SELECT j.* FROM jobs.topic t CROSS JOIN LATERAL (
        SELECT j.number, j.topic, j.only_on, j.open_at, j.delayed, j.turn FROM jobs.job j
        WHERE j.topic = t.topic AND j.state = 'QUEUED' AND (NOT j.delayed OR j.attempts > 0)
        ORDER BY j.turn LIMIT 1) j
    WHERE t.queue = q.name AND t.topic <> ALL(%(unconsumed)s)
    ORDER BY j.turn LIMIT 1) h
WHERE q.name = ANY(%(queues)s) AND q.type = 'ORDERED' AND NOT q.suspended AND {_LEASED}
    AND NOT h.delayed AND h.topic = ANY(%(mine)s)
    AND (h.only_on = ANY(%(places_for)s) OR h.open_at IS NOT NULL)
    AND (h.only_on <> '{LEADER}' OR h.topic = ANY(%(led)s))
    AND NOT EXISTS (
        SELECT FROM jobs.topic t JOIN jobs.job j ON j.topic = t.topic AND j.state = 'ACTIVE'
        WHERE t.queue = q.name)
"""  # noqa: S608
"""The first job of each ordered queue that has none under way, where this run may do it.

A job that is to be tried again holds its queue until then; one that was given for later does not.
"""

LOCK_QUEUES = """
SELECT name FROM jobs.queue WHERE name = ANY(%s) ORDER BY name FOR NO KEY UPDATE SKIP LOCKED
"""

CLAIM_HEADS = f"WITH picked AS MATERIALIZED ({HEADS}) {_ACTIVATE}"
