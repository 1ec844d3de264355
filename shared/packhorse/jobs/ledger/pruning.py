"""Forgetting history: by the time when jobs finished, in every final state, a batch at a time.

A job's age is that of its end, by the database's clock, never of its beginning (features JB-4); a
topic is compared as it is stored (JB-3); no final state is left out unless a rule says so (JB-6).
With a job its id is forgotten: given again, it is a new one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from psycopg import Connection, sql

from packhorse.jobs.consumer import JobContext, Outcome, Result
from packhorse.jobs.consumers import Reach
from packhorse.jobs.filters import topic_part
from packhorse.jobs.job import Job
from packhorse.jobs.ledger.history_rule import HistoryRule, InvalidRule, rule_of
from packhorse.jobs.ledger.topics import forget_topics
from packhorse.jobs.sessions import Connect, reading, writing

BATCH = 1_000
"""Jobs of history that one transaction looks at."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """What came of pruning."""

    forgotten: int
    complete: bool
    """Whether all that the rule means was looked at."""


class PruneHistory:
    """A consumer that prunes by the rule in its job's properties (`history_rule.rule_of`).

    Then it forgets the topics that nothing uses any more, if the view of the cluster holds.
    """

    def __init__(self, connect: Connect, reaches: Callable[[], Mapping[str, Reach] | None]) -> None:
        """Take what tells the reach of every live instance; None: not known now."""
        self._connect, self._reaches = connect, reaches

    def __call__(self, job: Job, context: JobContext) -> Result:
        """Prune; a job with a rule that makes no sense is not tried again."""
        try:
            rule = rule_of(job.properties)
        except InvalidRule as error:
            return Result(Outcome.CANCEL, str(error))
        pruned = prune(self._connect, rule, is_enough=lambda: context.stop_requested)
        if not pruned.complete:
            return Result(Outcome.FAILED, f"{pruned.forgotten} jobs forgotten")
        topics = self._forget_topics(lambda: context.stop_requested)
        return Result(Outcome.OK, f"{pruned.forgotten} jobs, {topics} topics forgotten")

    def _forget_topics(self, is_enough: Callable[[], bool]) -> int:
        reaches = self._reaches()
        if reaches is None:
            return 0
        patterns = {pattern for reach in reaches.values() for pattern in reach.patterns}
        return forget_topics(self._connect, sorted(patterns), is_enough=is_enough)


_Place = tuple[datetime, int]
_BEFORE_ALL: _Place = (datetime(1, 1, 2, tzinfo=UTC), 0)


def prune(
    connect: Connect,
    rule: HistoryRule,
    *,
    batch: int = BATCH,
    is_enough: Callable[[], bool] = lambda: False,
) -> Pruned:
    """Forget what a rule means, the oldest first, `batch` jobs looked at in each transaction.

    After each one `is_enough` is asked. Jobs that somebody changes at the moment are left for the
    next time. Two that prune at once do no harm.
    """
    with reading(connect) as connection:
        bound = _bound(connection, rule)
    forgotten, place = 0, None if bound is None else _BEFORE_ALL
    while place is not None and bound is not None:
        with writing(connect) as connection:
            count, place = _prune_batch(connection, rule, place, bound, batch)
        forgotten += count
        if place is not None and is_enough():
            return Pruned(forgotten, complete=False)
    return Pruned(forgotten, complete=True)


def _meant(rule: HistoryRule) -> tuple[sql.Composed, list[Any]]:
    parts = [topic_part(topic) for topic in rule.topics]
    topics = sql.SQL(" OR ").join(sql.SQL("({})").format(text) for text, _ in parts)
    condition = sql.SQL("state = ANY(%s::text[]) AND ({})").format(topics)
    return condition, [list(rule.states), *(value for _, values in parts for value in values)]


def _bound(connection: Connection, rule: HistoryRule) -> _Place | None:
    """Return the newest place that is to be forgotten; None: nothing is."""
    bounds: list[_Place] = []
    if rule.max_age_s is not None:
        [(time,)] = connection.execute(
            "SELECT clock_timestamp() - make_interval(secs => %s)", (rule.max_age_s,)
        ).fetchall()
        bounds.append((time, 0))  # numbers begin with 1: only what finished before
    if rule.max_count is not None:
        condition, values = _meant(rule)
        query = sql.SQL(
            "SELECT finished_at, number FROM jobs.finished WHERE {} "
            "ORDER BY finished_at DESC, number DESC OFFSET %s LIMIT 1"
        ).format(condition)
        bounds += connection.execute(query, [*values, rule.max_count]).fetchall()
    return max(bounds, default=None)


_BATCH = sql.SQL(
    """
    WITH looked_at AS MATERIALIZED (
        SELECT finished_at, number, {meant} AS meant FROM jobs.finished
        WHERE (finished_at, number) > (%s, %s) AND (finished_at, number) <= (%s, %s)
        ORDER BY finished_at, number LIMIT %s
    ), free AS MATERIALIZED (
        SELECT f.number FROM jobs.finished f JOIN looked_at USING (number) WHERE looked_at.meant
        FOR UPDATE OF f SKIP LOCKED
    ), gone AS (
        DELETE FROM jobs.finished f USING free WHERE f.number = free.number RETURNING f.number
    )
    SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM looked_at), finished_at, number
    FROM looked_at ORDER BY finished_at DESC, number DESC LIMIT 1
    """
)


def _prune_batch(
    connection: Connection, rule: HistoryRule, place: _Place, bound: _Place, batch: int
) -> tuple[int, _Place | None]:
    """Return how many were forgotten, and where to go on; None behind the bound."""
    condition, values = _meant(rule)
    row = connection.execute(
        _BATCH.format(meant=condition), [*values, *place, *bound, batch]
    ).fetchone()
    if row is None:
        return 0, None
    forgotten, looked_at, finished_at, number = row
    return forgotten, (finished_at, number) if looked_at == batch else None
