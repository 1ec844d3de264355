"""What a search for jobs asks the database, as SQLAlchemy Core composes it.

Pure: a filter becomes a statement; whatever somebody gave is a parameter. `finding` loads this
module when a search is made, since few programs search.
"""

import json
import operator
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    Subquery,
    Text,
    and_,
    any_,
    cast,
    collate,
    func,
    literal,
    literal_column,
    not_,
    or_,
    select,
    text,
    true,
    tuple_,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from packhorse.jobs.filters import Condition, JobFilter, Operator, parse_templates, topic_range
from packhorse.jobs.job import JobState
from packhorse.jobs.ledger.pages import HistoryStart, Unfinished
from packhorse.jobs.store.rows import FINISHED as FINISHED_COLUMNS
from packhorse.jobs.store.rows import FROM_UNFINISHED
from packhorse.jobs.store.rows import UNFINISHED as UNFINISHED_COLUMNS
from packhorse.jobs.store.tables import FINISHED

_NAMED = [
    FINISHED.c[name]
    for name in (
        *("number", "topic", "id", "queue", "state", "properties"),
        *("instance", "application", "schedule", "finished_at"),
    )
]


def _jobs(selected: str) -> Subquery:
    return text(selected).columns(*_NAMED).subquery("job")


UNFINISHED_JOBS = _jobs(f"SELECT {UNFINISHED_COLUMNS} FROM {FROM_UNFINISHED}")  # noqa: S608  # constants
FINISHED_JOBS = _jobs(f"SELECT {FINISHED_COLUMNS} FROM jobs.finished j")  # noqa: S608  # constants
_EVERY_COLUMN: ColumnElement[Any] = literal_column("*")
_NAMES = ("id", "queue", "instance", "application", "schedule")
_ORDER: dict[Operator, Callable[[Any, Any], Any]] = {
    Operator.LESS: operator.lt,
    Operator.AT_MOST: operator.le,
    Operator.MORE: operator.gt,
    Operator.AT_LEAST: operator.ge,
}


def oldest(
    wanted: JobFilter, states: Sequence[JobState], place: Unfinished, limit: int
) -> Select[Any]:
    """Select the unfinished jobs in some of these states behind a place, the oldest first."""
    number = UNFINISHED_JOBS.c.number
    return (
        select(_EVERY_COLUMN)
        .select_from(UNFINISHED_JOBS)
        .where(where(UNFINISHED_JOBS, wanted, states), number > place.number)
        .order_by(number)
        .limit(limit)
    )


def newest(
    wanted: JobFilter, states: Sequence[JobState], place: HistoryStart, limit: int
) -> Select[Any]:
    """Select the jobs of history in some of these states behind a place, the newest first."""
    finished_at, number = FINISHED_JOBS.c.finished_at, FINISHED_JOBS.c.number
    found = (
        select(_EVERY_COLUMN)
        .select_from(FINISHED_JOBS)
        .where(where(FINISHED_JOBS, wanted, states))
        .order_by(finished_at.desc(), number.desc())
        .limit(limit)
    )
    if place.finished_at is None:
        return found
    bound = tuple_(literal(place.finished_at, finished_at.type), literal(place.number, number.type))
    return found.where(tuple_(finished_at, number) < bound)


def count(jobs: Subquery, wanted: JobFilter, states: Sequence[JobState], most: int) -> Select[Any]:
    """Select how many jobs there are, `most` where there are more."""
    found = select(true()).select_from(jobs).where(where(jobs, wanted, states)).limit(most)
    return select(func.count()).select_from(found.subquery("found"))


def where(jobs: Subquery, wanted: JobFilter, states: Sequence[JobState]) -> ColumnElement[bool]:
    """Return the condition on jobs in some of these states, which are the filter's."""
    columns = jobs.c
    parts = [columns.state == any_(literal([state.value for state in states], ARRAY(Text)))]
    parts += _topic(columns.topic, wanted.topic)
    if wanted.without is not None:
        parts.append(not_(and_(true(), *_topic(columns.topic, wanted.without))))
    parts += [
        columns[name] == value for name in _NAMES if (value := getattr(wanted, name)) is not None
    ]
    templates = [
        and_(true(), *(_compare(columns.properties, condition) for condition in template))
        for template in parse_templates(wanted.templates)
    ]
    if templates:
        parts.append(or_(*templates))
    return and_(*parts)


def _topic(topic: ColumnElement[str], pattern: str) -> list[ColumnElement[bool]]:
    """Compare a topic, by code points, with a valid pattern."""
    if pattern == "**":
        return []
    bounds = topic_range(pattern)
    if bounds is None:
        return [topic == pattern]
    low, high = bounds
    parts = [topic >= low, topic < high]
    if not pattern.endswith("/**"):
        parts.append(func.strpos(func.substr(topic, len(low) + 1), "/") == 0)
    return parts


def _compare(properties: ColumnElement[Any], condition: Condition) -> ColumnElement[bool]:
    name = cast(condition.name, Text)
    found = properties.op("->")(name)
    value = cast(literal(json.dumps(condition.value), Text), JSONB)
    if condition.operator is Operator.EQUAL:
        return found.op("=")(value)
    compare = _ORDER[condition.operator]
    if isinstance(condition.value, str):
        text_of = collate(properties.op("->>", return_type=Text())(name), "C")
        given = literal(condition.value, Text)
        return and_(func.jsonb_typeof(found) == "string", compare(text_of, given))
    return and_(func.jsonb_typeof(found) == "number", compare(found, value))
