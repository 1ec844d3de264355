"""Templates in SQL against the same in Python, for whatever properties jobs have."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_as
from packhorse.jobs.filters import Condition, JobFilter, Operator, parse_templates
from packhorse.jobs.ledger.finding import find
from tests.harness.depth import examples
from tests.harness.jobs.stored import insert_finished
from tests.harness.postgres import Databases

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ABSENT = object()

TEXTS = st.one_of(
    st.sampled_from(["A", "a", "B", "b", "ä", "aa", "10", "9"]),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=3),
)
NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.integers(-(2**53), 2**53),
    st.floats(allow_nan=False, allow_infinity=False),
)
SMALL = st.sampled_from([0, 1, 1.0, 2.5, "a", "B", "b", "Z"])
"""Often drawn twice, since what is equal distinguishes most operators."""
SCALARS = st.one_of(SMALL, SMALL, TEXTS, NUMBERS, st.booleans(), st.none())
VALUES = st.one_of(SMALL, SCALARS, st.lists(SCALARS, max_size=2), st.dictionaries(TEXTS, SCALARS))
NAMES = st.sampled_from(["a", "b", "ä'\"%s"])
PROPERTIES = st.dictionaries(NAMES, VALUES, max_size=3)


@st.composite
def templates(draw: st.DrawFn) -> list[dict[str, Any]]:
    def condition() -> tuple[str, Any]:
        operator, value = draw(st.sampled_from(list(Operator))), draw(SCALARS)
        if value is None or isinstance(value, bool):
            operator = Operator.EQUAL
        return operator + draw(NAMES), value

    sizes = draw(st.lists(st.integers(1, 2), min_size=1, max_size=2))
    return [dict(condition() for _ in range(size)) for size in sizes]


def fulfils(properties: Mapping[str, Any], condition: Condition) -> bool:
    """What a condition means, said another way."""
    value, wanted = properties.get(condition.name, ABSENT), condition.value
    if kind(value) != kind(wanted):
        return False
    if condition.operator is Operator.EQUAL:
        return bool(value == wanted)
    assert isinstance(value, str | int | float)
    return {
        Operator.LESS: value < wanted,  # type: ignore[operator]
        Operator.AT_MOST: value <= wanted,  # type: ignore[operator]
        Operator.MORE: value > wanted,  # type: ignore[operator]
        Operator.AT_LEAST: value >= wanted,  # type: ignore[operator]
    }[condition.operator]


def kind(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, int | float):
        return "number"
    return type(value).__name__


@pytest.fixture(scope="module")
def stored(databases: Databases) -> Iterator[tuple[psycopg.Connection, dict[int, Any]]]:
    with psycopg.connect(databases.new()) as connection:
        act_as(connection, BOOKKEEPER)
        yield connection, {}


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(PROPERTIES, templates())
def test_sql_and_python_agree(
    stored: tuple[psycopg.Connection, dict[int, Any]],
    properties: dict[str, Any],
    chosen: Sequence[Mapping[str, Any]],
) -> None:
    connection, known = stored
    known[insert_finished(connection, NOON, properties=properties)] = properties
    jobs = find(connection, JobFilter(templates=chosen), limit=1_000).jobs
    expected = {
        number
        for number, values in known.items()
        if any(all(fulfils(values, one) for one in t) for t in parse_templates(chosen))
    }
    assert {job.number for job in jobs} == expected
