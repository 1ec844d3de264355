"""What was done, counted where it is done: a row for each queue, topic and instance.

All functions are called in a transaction as the bookkeeper. Instances have rows of their own, so
that workers don't wait for each other; the rows of those that are gone are folded into one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime

from psycopg import Connection

from packhorse.jobs.job import JobState
from packhorse.jobs.store.endings import EndDecision, How

Key = tuple[str, str, str]
"""Queue, topic, instance; "" stands for forgotten topics, and for instances that are gone, and
people."""

FOLD_LOCK = 0x70686664
"""Advisory lock: exclusive to who folds rows of instances, shared by who forgets topics."""
_COLUMN = {
    JobState.SUCCEEDED: "succeeded",
    JobState.STOPPED: "stopped",
    JobState.GIVEN_UP: "given_up",
    JobState.ERROR: "errors",
    JobState.DROPPED: "dropped",
}


@dataclass(slots=True)
class StatisticsDelta:
    """What is to be added to a row."""

    succeeded: int = 0
    stopped: int = 0
    given_up: int = 0
    errors: int = 0
    dropped: int = 0
    failed_attempts: int = 0
    attempts: int = 0
    waiting_s: float = 0.0
    processing_s: float = 0.0
    last_started_at: datetime | None = None
    last_finished_at: datetime | None = None


def of_decisions(decisions: Iterable[EndDecision]) -> dict[Key, StatisticsDelta]:
    """Return what ended attempts add; those that were not begun add nothing."""
    added: dict[Key, StatisticsDelta] = {}
    for decision in decisions:
        if decision.how is not How.UNBEGUN:
            held = decision.held
            _count(
                added.setdefault((held.queue, held.topic, held.instance), StatisticsDelta()),
                decision,
            )
    return added


def of_ended(
    jobs: Iterable[tuple[str, str]], state: JobState, now: datetime
) -> dict[Key, StatisticsDelta]:
    """Return what jobs add, by queue and topic, that ended without being begun."""
    added: dict[Key, StatisticsDelta] = {}
    for queue, topic in jobs:
        counts = added.setdefault((queue, topic, ""), StatisticsDelta(last_finished_at=now))
        setattr(counts, _COLUMN[state], getattr(counts, _COLUMN[state]) + 1)
    return added


def _count(counts: StatisticsDelta, decision: EndDecision) -> None:
    held = decision.held
    counts.attempts += 1
    counts.waiting_s += held.waited_s
    counts.processing_s += held.worked_s
    counts.last_started_at = max(held.started_at, counts.last_started_at or held.started_at)
    if decision.how in (How.FAILED, How.TIMED_OUT, How.LOST):
        counts.failed_attempts += 1
    if decision.result.final:
        column = _COLUMN[decision.result]
        setattr(counts, column, getattr(counts, column) + 1)
        counts.last_finished_at = max(held.now, counts.last_finished_at or held.now)


def add(connection: Connection, added: dict[Key, StatisticsDelta]) -> None:
    """Add to the rows, in an order that all have, so that no two wait for each other."""
    if not added:
        return
    keys = sorted(added)
    columns = [[key[part] for key in keys] for part in range(3)]
    columns += [[getattr(added[key], name) for key in keys] for name in _NAMES]
    connection.execute(_ADD, columns)


def fold(connection: Connection, idle_s: float = 86_400.0) -> int:
    """Fold the rows of instances that have no worker and have long done nothing; say how many.

    Waits for nobody: while another folds, or forgets topics, it is left for the next time.
    """
    [(alone,)] = connection.execute("SELECT pg_try_advisory_xact_lock(%s)", (FOLD_LOCK,)).fetchall()
    if not alone:
        return 0
    [(count,)] = connection.execute(_FOLD, (idle_s,)).fetchall()
    return int(count)


def keep_unfolded(connection: Connection) -> None:
    """Let nobody `fold` until the transaction ends; waits for who does."""
    connection.execute("SELECT pg_advisory_xact_lock_shared(%s)", (FOLD_LOCK,))


def fold_topics(connection: Connection, topics: Sequence[str]) -> None:
    """Fold the rows of topics that are forgotten into one for each queue, whose sums stay so.

    Only after `keep_unfolded`: a `fold` under way adds rows of these topics that it can't see.
    """
    connection.execute(_FOLD_TOPICS, (list(topics),))


_NAMES = tuple(field.name for field in fields(StatisticsDelta))
_TIMES = ("last_started_at", "last_finished_at")
_SUMS = tuple(name for name in _NAMES if name not in _TIMES)
_TYPES = [
    "timestamptz" if name in _TIMES else "double precision" if name.endswith("_s") else "bigint"
    for name in _NAMES
]
_LIST = ", ".join(("queue", "topic", "instance", *_NAMES))
_CONFLICT = "ON CONFLICT (queue, topic, instance) DO UPDATE SET " + ", ".join(
    [f"{name} = s.{name} + excluded.{name}" for name in _SUMS]
    + [f"{name} = greatest(s.{name}, excluded.{name})" for name in _TIMES]
)
_ADD = f"""
INSERT INTO jobs.statistics AS s ({_LIST})
SELECT * FROM unnest(%s::text[], %s::text[], %s::text[],
    {", ".join(f"%s::{kind}[]" for kind in _TYPES)})
{_CONFLICT}
"""  # noqa: S608


def _folding(which: str, topic: str) -> str:
    """Return the statement that makes of some rows one for each queue and what `topic` says."""
    return f"""
WITH gone AS (
    DELETE FROM jobs.statistics s WHERE {which} RETURNING *
), folded AS (
    INSERT INTO jobs.statistics AS s ({_LIST}, since)
    SELECT queue, {topic}, '', {", ".join(f"sum({name})" for name in _SUMS)},
        {", ".join(f"max({name})" for name in _TIMES)}, min(since)
    FROM gone GROUP BY 1, 2 ORDER BY 1, 2
    {_CONFLICT}, since = least(s.since, excluded.since)
)
SELECT count(*) FROM gone
"""  # noqa: S608


LAST_USED = "greatest(s.since, s.last_started_at, s.last_finished_at)"
"""When something was done last that is counted in the row `s`."""

_FOLD = _folding(
    f"""s.instance <> ''
        AND {LAST_USED} < clock_timestamp() - make_interval(secs => %s)
        AND NOT EXISTS (SELECT FROM jobs.worker w WHERE w.instance = s.instance)""",
    "topic",
)
_FOLD_TOPICS = _folding("s.topic = ANY(%s::text[])", "''::text")
