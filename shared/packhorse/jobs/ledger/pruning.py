"""Removing history by the rules of its topics: by the time when jobs finished, a batch at a time.

A job's age is that of its end, by the database's clock, never of its beginning; a
topic is compared as it is stored; no final state is left out unless a rule says so.
With a job its id is forgotten: given again, it is a new one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from psycopg import Connection, sql

from packhorse.db.transactions import Connect, reading, writing
from packhorse.errors import Permanent
from packhorse.jobs.consumer import JobContext, Outcome, Result
from packhorse.jobs.consumers import HandledTopics
from packhorse.jobs.job import FINAL_STATES, Job, JobState
from packhorse.jobs.ledger.topics import forget_topics
from packhorse.jobs.names import InvalidName, require_pattern
from packhorse.jobs.topic_sql import topic_part

_MAX_TOPICS = 20
_MAX_NUMBER = 10**10


class InvalidRule(Permanent):
    """A rule of pruning that makes no sense; the text says why."""


def _require_pattern(topic: str) -> None:
    try:
        require_pattern(topic)
    except InvalidName as error:
        raise InvalidRule(str(error)) from error


@dataclass(frozen=True, slots=True)
class HistoryRule:
    """Which jobs of history are forgotten: those of its topics and states that one limit exceeds.

    Raises `InvalidRule`.
    """

    max_age_s: float | None = None
    """Those that finished longer ago; None: no age is too old."""
    max_count: int | None = None
    """All but so many, the newest of the rule's topics and states; None: none are too many."""
    topics: tuple[str, ...] = ("**",)
    """Patterns."""
    states: tuple[JobState, ...] = FINAL_STATES

    def __post_init__(self) -> None:
        if self.max_age_s is None and self.max_count is None:
            raise InvalidRule("a rule needs max_age_s, max_count or both")
        for number in (self.max_age_s, self.max_count):
            if number is not None and not 0 <= number <= _MAX_NUMBER:
                raise InvalidRule(f"an age in seconds or a count is 0 to {_MAX_NUMBER}")
        if not self.states or not all(state.final for state in self.states):
            raise InvalidRule(f"only final states are pruned: {', '.join(FINAL_STATES)}")
        if not 1 <= len(self.topics) <= _MAX_TOPICS:
            raise InvalidRule(f"a rule has 1 to {_MAX_TOPICS} patterns of topics")
        for topic in self.topics:
            _require_pattern(topic)


DEFAULT_RULE = HistoryRule(max_age_s=7 * 24 * 3600, max_count=1_000_000)
"""A week, as long as the journal remembers, and a million jobs."""


def rule_of(properties: Mapping[str, Any]) -> HistoryRule:
    """Return the rule that a job's properties say: `max_age_s`, `max_count`, `topics`, `states`.

    The default's age and count hold where neither is given. Raises `InvalidRule`.
    """
    unknown = sorted(properties.keys() - {"max_age_s", "max_count", "topics", "states"})
    if unknown:
        raise InvalidRule(f"{unknown[0][:80]!r} is none of max_age_s, max_count, topics, states")
    age = _number(properties, "max_age_s", float)
    count = _number(properties, "max_count", int)
    if age is None and count is None:
        age, count = DEFAULT_RULE.max_age_s, DEFAULT_RULE.max_count
    return HistoryRule(
        max_age_s=age,
        max_count=count if count is None else int(count),
        topics=_texts(properties, "topics", DEFAULT_RULE.topics),
        states=tuple(map(_state, _texts(properties, "states", DEFAULT_RULE.states))),
    )


def _number(properties: Mapping[str, Any], name: str, kind: type[float]) -> float | None:
    value = properties.get(name)
    accepted = (int, float) if kind is float else (int,)
    if value is None or (isinstance(value, accepted) and not isinstance(value, bool)):
        return value
    raise InvalidRule(f"{name} is a number")


def _texts(properties: Mapping[str, Any], name: str, default: tuple[str, ...]) -> tuple[str, ...]:
    value = properties.get(name, default)
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise InvalidRule(f"{name} is a list of texts")
    return tuple(value)


def _state(text: str) -> JobState:
    try:
        return JobState(text)
    except ValueError:
        raise InvalidRule(
            f"{text[:80]!r} is no final state: one of {', '.join(FINAL_STATES)}"
        ) from None


BATCH = 1_000
"""Jobs of history that one transaction looks at."""


@dataclass(frozen=True, slots=True)
class PrunedJobs:
    """What came of pruning."""

    forgotten: int
    complete: bool
    """Whether all that the rule means was looked at."""


class PruneHistory:
    """A consumer that prunes by the rule in its job's properties (`rule_of`).

    Then it forgets the topics that nothing uses any more, if the view of the cluster holds.
    """

    def __init__(
        self, connect: Connect, handled_topics: Callable[[], Mapping[str, HandledTopics] | None]
    ) -> None:
        """Take what returns the handled topics of every live instance; None: not known now."""
        self._connect, self._handled_topics = connect, handled_topics

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
        handled_topics = self._handled_topics()
        if handled_topics is None:
            return 0
        patterns = {pattern for topics in handled_topics.values() for pattern in topics.patterns}
        return forget_topics(self._connect, sorted(patterns), is_enough=is_enough)


_Place = tuple[datetime, int]
_BEFORE_ALL: _Place = (datetime(1, 1, 2, tzinfo=UTC), 0)


def prune(
    connect: Connect,
    rule: HistoryRule,
    *,
    batch: int = BATCH,
    is_enough: Callable[[], bool] = lambda: False,
) -> PrunedJobs:
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
            return PrunedJobs(forgotten, complete=False)
    return PrunedJobs(forgotten, complete=True)


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
