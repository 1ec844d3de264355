"""Filters of jobs: what is understood, and what is refused with a text that helps."""

import json

import pytest

from packhorse.db.composed import composed
from packhorse.jobs.filters import (
    EVERYTHING,
    Condition,
    InvalidFilter,
    JobFilter,
    Operator,
    StateGroup,
    parse_templates,
)
from packhorse.jobs.job import JobState
from packhorse.jobs.ledger import search
from packhorse.jobs.ledger.pages import HistoryStart, Unfinished
from packhorse.jobs.names import InvalidName


def test_the_groups_are_those_of_the_inventory() -> None:
    assert StateGroup.HISTORY.states == tuple(s for s in JobState if s.final)
    assert set(StateGroup.CANCELLED.states) == {
        JobState.STOPPED,
        JobState.GIVEN_UP,
        JobState.ERROR,
        JobState.DROPPED,
    }
    assert set(StateGroup.ALL.states) == set(JobState)
    assert StateGroup.ERROR.states == (JobState.ERROR,)


@pytest.mark.parametrize(
    ("key", "operator"),
    [
        ("size", Operator.EQUAL),
        ("=size", Operator.EQUAL),
        ("<size", Operator.LESS),
        ("<=size", Operator.AT_MOST),
        (">size", Operator.MORE),
        (">=size", Operator.AT_LEAST),
    ],
)
def test_an_operator_stands_before_the_property(key: str, operator: Operator) -> None:
    assert parse_templates([{key: 3}]) == ((Condition("size", operator, 3),),)


@pytest.mark.parametrize("key", ["!=size", "==size", "<>size", "=>size", "~size"])
def test_another_operator_is_refused(key: str) -> None:
    with pytest.raises(InvalidFilter, match=r"is no operator: one of =, <, <=, >, >="):
        JobFilter(templates=[{key: 3}])


@pytest.mark.parametrize(
    "template",
    [
        {"": 1},
        {">=": 1},
        {"a\0": 1},
        {"a": "\0"},
        {"a": "\ud800"},
        {"a": [1]},
        {"a": {"b": 1}},
        {"a": float("nan")},
        {"a": float("inf")},
        {"a": 10**400},
        {"a": "x" * 2_000},
        {"x" * 2_000: 1},
        {"<a": True},
        {">a": None},
        {f"a{n}": n for n in range(30)},
    ],
)
def test_what_can_never_match_or_is_too_large_is_refused(template: dict[str, object]) -> None:
    with pytest.raises(InvalidFilter):
        JobFilter(templates=[template])


def test_too_many_templates_and_names_of_no_sense_are_refused() -> None:
    with pytest.raises(InvalidFilter, match="at most 10 templates"):
        JobFilter(templates=[{"a": 1}] * 11)
    with pytest.raises(InvalidFilter, match="a name in a filter"):
        JobFilter(queue="a\0b")
    with pytest.raises(InvalidName):
        JobFilter(topic="a/*/b")


def test_nothing_given_is_a_part_of_the_sql_text() -> None:
    evil = "x' OR '1'='1"
    wanted = JobFilter(templates=[{evil: evil, f">{evil}": evil}], id=evil, queue=evil)
    text, parameters = composed(search.newest(wanted, list(JobState), HistoryStart(), 10))
    assert evil.encode() not in text
    values = [value for value in parameters.values() if isinstance(value, str)]
    assert values.count(evil) == 5
    assert json.dumps(evil) in values


def test_a_filter_that_restricts_nothing_asks_for_every_topic_and_property() -> None:
    text, _ = composed(search.oldest(EVERYTHING, list(JobState), Unfinished(0), 10))
    assert b"topic >=" not in text
    assert b"jsonb_typeof" not in text
    both = JobFilter(templates=[{}, {"a": 1}])
    text, _ = composed(search.oldest(both, list(JobState), Unfinished(0), 10))
    assert b" AND (true OR " in text, "the empty template means every job"


def test_the_word_for_any_number_of_conditions_is_that_of_their_level() -> None:
    wanted = JobFilter(templates=[{">=a": 1, "b": True}, {"<c": "x"}], queue="main")
    text = composed(search.oldest(wanted, list(JobState), Unfinished(7), 10))[0].decode()
    condition = text[text.index("WHERE job.state") :]
    assert condition.count(" OR ") == 1
    assert " AND job.queue = " in condition[: condition.index(" OR ")]
    assert " AND job.number > " in condition[condition.index(" OR ") :]
