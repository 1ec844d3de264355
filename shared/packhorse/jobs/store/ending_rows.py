"""The statements that end attempts: locked first, decided, then written.

All functions are called in a READ COMMITTED transaction as the bookkeeper.
"""

from collections.abc import Sequence

import orjson
from psycopg import Connection
from psycopg.rows import class_row

from packhorse.jobs.event_store import NewEvent, record
from packhorse.jobs.job import JobState
from packhorse.jobs.store import statistics
from packhorse.jobs.store.claim_statements import USE_INDEXES
from packhorse.jobs.store.claims import Claim
from packhorse.jobs.store.endings import MOST_ATTEMPTS, EndDecision, HeldJob
from packhorse.jobs.store.notifications import PREFIX
from packhorse.jobs.store.queues import notify_workers
from packhorse.jobs.store.rows import FROM_UNFINISHED, stored_attempt

_USE_INDEXES = f"SELECT {USE_INDEXES}"

_HELD = """
    j.number, j.topic, j.id, t.queue, q.type = 'ORDERED' AS ordered, j.runtime_id, j.instance,
    j.epoch, j.attempts, coalesce(j.max_retries, q.max_retries) AS max_retries, j.retry,
    q.retry_delay_s, q.max_retry_delay_s, q.keep_history, j.again IS NOT NULL AS again,
    j.stop_requested, j.ready_at, j.started_at, clock_timestamp() AS now, j.past_attempts
"""

# "Not QUEUED" is ACTIVE, and keeps the planner from the index of active jobs: a number has one row.
_LOCK_CLAIMED = f"""
SELECT {_HELD} FROM unnest(%s::bigint[], %b::text[], %s::bigint[])
    WITH ORDINALITY AS c (number, runtime_id, epoch, place)
JOIN jobs.job j
    ON j.number = c.number AND j.runtime_id = c.runtime_id COLLATE "C" AND j.epoch = c.epoch
JOIN jobs.topic t ON t.topic = j.topic JOIN jobs.queue q ON q.name = t.queue
WHERE j.state <> 'QUEUED' ORDER BY c.place FOR UPDATE OF j
"""  # noqa: S608

_LOCK_LOST = f"""
SELECT {_HELD} FROM {FROM_UNFINISHED}
WHERE j.state = 'ACTIVE' AND NOT EXISTS (
    SELECT FROM jobs.worker w
    WHERE w.runtime_id = j.runtime_id AND w.lease_until > clock_timestamp())
LIMIT %s FOR UPDATE OF j SKIP LOCKED
"""  # noqa: S608


def lock_claimed(
    connection: Connection, claims: Sequence[Claim], *, wait: bool = True
) -> dict[Claim, HeldJob]:
    """Lock what is held under claims; those that are lost are missing.

    Without `wait` those that a transaction holds just now are missing too.
    """
    statement = _LOCK_CLAIMED if wait else f"{_LOCK_CLAIMED} SKIP LOCKED"
    ordered = sorted(claims, key=lambda claim: claim.number)  # all lock in this order
    columns = (
        [claim.number for claim in ordered],
        [claim.runtime_id for claim in ordered],
        [claim.epoch for claim in ordered],
    )
    return {claim_of(held): held for held in _held(connection, statement, columns)}


def still_active(connection: Connection, claims: Sequence[Claim]) -> set[Claim]:
    """Return those claims that hold, without a lock."""
    rows = connection.execute(
        "SELECT number, runtime_id, epoch FROM jobs.job WHERE number = ANY(%s) "
        "AND state = 'ACTIVE'",
        ([claim.number for claim in claims],),
    )
    return {Claim(*row) for row in rows} & set(claims)


def lock_lost(connection: Connection, limit: int) -> list[HeldJob]:
    """Lock a batch of jobs whose worker has no lease and no transaction that holds them."""
    return _held(connection, _LOCK_LOST, (limit,))


def claim_of(held: HeldJob) -> Claim:
    """Return the claim under which it is held."""
    return Claim(held.number, held.runtime_id, held.epoch)


def _held(connection: Connection, statement: str, given: Sequence[object]) -> list[HeldJob]:
    with connection.cursor(row_factory=class_row(HeldJob)) as cursor:
        with connection.pipeline():
            connection.execute(_USE_INDEXES)
            cursor.execute(statement.encode(), given)
        return cursor.fetchall()


def write(connection: Connection, decisions: Sequence[EndDecision]) -> None:
    """Do what was decided of jobs that are locked; count and report it."""
    final = [decision for decision in decisions if decision.state.final]
    queued = [decision for decision in decisions if not decision.state.final]
    if final:
        connection.execute(_FINISH, _final_columns(final))
    if queued:
        connection.execute(_REQUEUE, _queued_columns(queued))
    statistics.add(connection, statistics.of_decisions(decisions))
    record(connection, [event for event in map(_event, decisions) if event is not None])
    if any(d.held.ordered or d.state is JobState.QUEUED for d in decisions):
        notify_workers(connection)


def finish_waiting(
    connection: Connection,
    jobs: Sequence[tuple[int, str, int]],
    state: JobState,
    reason: str,
) -> None:
    """Move jobs that are locked into history: numbers, queues and max_retries."""
    connection.execute(
        _FINISH,
        {
            "number": [number for number, _, _ in jobs],
            "queue": [queue for _, queue, _ in jobs],
            "most": [most for _, _, most in jobs],
            "state": [state.value] * len(jobs),
            "message": [reason] * len(jobs),
            "past": [None] * len(jobs),
            "kept": [True] * len(jobs),
        },
    )


def _final_columns(decisions: Sequence[EndDecision]) -> dict[str, Sequence[object]]:
    return {
        "number": [decision.held.number for decision in decisions],
        "queue": [decision.held.queue for decision in decisions],
        "most": [decision.held.max_retries for decision in decisions],
        "state": [decision.state.value for decision in decisions],
        "message": [decision.message for decision in decisions],
        "past": [_past(decision) for decision in decisions],
        "kept": [decision.kept for decision in decisions],
    }


def _queued_columns(decisions: Sequence[EndDecision]) -> dict[str, Sequence[object]]:
    return {
        "number": [decision.held.number for decision in decisions],
        "delay_s": [decision.delay_s for decision in decisions],
        "attempts": [decision.attempts for decision in decisions],
        "retry": [decision.retry for decision in decisions],
        "message": [decision.message for decision in decisions],
        "past": [_past(decision) for decision in decisions],
    }


def _past(decision: EndDecision) -> str | None:
    if decision.past is None:
        return None
    past = [*decision.held.past_attempts, stored_attempt(decision.past)]
    return orjson.dumps(past[-MOST_ATTEMPTS:]).decode()


def _event(decision: EndDecision) -> NewEvent | None:
    held, kind = decision.held, decision.notification
    if kind is None:
        return None
    return NewEvent(
        topic=PREFIX + kind,
        application=held.instance,
        properties={
            "number": held.number,
            "topic": held.topic,
            "id": held.id,
            "queue": held.queue,
            "state": decision.result.value,
            "instance": held.instance,
            "attempts": held.attempts,
            "reason": decision.message,
        },
        echo=True,
    )


_COPIED = """
    number, topic, id, priority, properties, application, created_at, ready_at, schedule,
    traceparent, attempts, retry, instance, epoch, started_at, stop_requested, progress, log, extra
"""

_FINISH = f"""
WITH ended AS (
    SELECT * FROM unnest(%(number)s::bigint[], %(queue)b::text[], %(most)s::integer[],
        %(state)b::text[], %(message)b::text[], %(past)b::text[], %(kept)s::boolean[])
        AS e (number, queue, most, result, message, past, kept)
), gone AS (
    DELETE FROM jobs.job j USING ended e WHERE j.number = e.number
    RETURNING j.*, e.queue, e.most, e.result, e.message, e.past, e.kept
)
INSERT INTO jobs.finished ({_COPIED}, only_on, queue, max_retries, own_max_retries, state,
    result_message, past_attempts, finished_at)
SELECT {_COPIED}, CASE WHEN open_at IS NULL THEN only_on ELSE '' END, queue, most, max_retries,
    result, message, coalesce(past::jsonb, past_attempts), clock_timestamp()
FROM gone WHERE kept
"""  # noqa: S608

# Given again, it is a new job under the old number; last in its order, like a new one.
_REQUEUE = """
UPDATE jobs.job j SET state = 'QUEUED', delayed = d.delay_s > 0,
    ready_at = clock_timestamp() + make_interval(secs => d.delay_s),
    runtime_id = '', instance = '', epoch = j.epoch + 1, attempts = d.attempts, retry = d.retry,
    started_at = NULL, stop_requested = false, result_message = d.message,
    properties = coalesce(j.again, j.properties), again = NULL,
    turn = CASE WHEN j.again IS NULL THEN j.turn ELSE nextval('jobs.number') END,
    past_attempts = CASE WHEN j.again IS NULL THEN coalesce(d.past::jsonb, j.past_attempts)
        ELSE '[]' END
FROM unnest(%(number)s::bigint[], %(delay_s)s::double precision[], %(attempts)s::integer[],
    %(retry)s::boolean[], %(message)b::text[], %(past)b::text[])
    AS d (number, delay_s, attempts, retry, message, past)
WHERE j.number = d.number
"""
