"""Which events a subscription covers."""

from typing import Any

import pytest

from packhorse.errors import Permanent
from packhorse.jobs.event import Event
from packhorse.jobs.events.filter import EventFilter

SIZE = {"size": 3, "color": "red", "on": True, "none": None, "list": [1]}


@pytest.mark.parametrize(
    ("patterns", "topic", "covered"),
    [
        (["a/b"], "a/b", True),
        (["a/b"], "a/b/c", False),
        (["a/*"], "a/b", True),
        (["a/*"], "a/b/c", False),
        (["a/**"], "a/b/c", True),
        (["a/**"], "ab/c", False),
        (["x", "a/b"], "a/b", True),
        (["**"], "anything", True),
    ],
)
def test_topics(patterns: list[str], topic: str, covered: bool) -> None:
    assert EventFilter(patterns).covers(Event(topic)) is covered


@pytest.mark.parametrize(
    ("template", "covered"),
    [
        ({"size": 3}, True),
        ({"=size": 3.0}, True),
        ({">=size": 3, "<size": 4}, True),
        ({">size": 3}, False),
        ({"<=size": 2.5}, False),
        ({"size": "3"}, False),
        ({">size": "1"}, False),
        ({"color": "red"}, True),
        ({"<color": "s"}, True),
        ({">color": "s"}, False),
        ({"on": True}, True),
        ({"on": 1}, False),
        ({"size": True}, False),
        ({"none": None}, True),
        ({"absent": None}, False),
        ({"list": 1}, False),
        ({}, True),
    ],
)
def test_properties(template: dict[str, Any], covered: bool) -> None:
    assert EventFilter(["**"], [template]).covers(Event("t", SIZE)) is covered


def test_one_template_of_several_is_enough_and_all_of_its_conditions_count() -> None:
    wanted = EventFilter(["t"], [{"size": 4}, {"size": 3, "color": "red"}])
    assert wanted.covers(Event("t", SIZE))
    assert not wanted.covers(Event("t", {**SIZE, "color": "blue"}))


@pytest.mark.parametrize(
    ("patterns", "templates"),
    [
        ([], []),
        (["a b"], []),
        (["a/*/b"], []),
        (["a"], [{"!size": 3}]),
        (["a"], [{"": 3}]),
        (["a"], [{">size": True}]),
        (["a"], [{"size": [1]}]),
    ],
)
def test_what_is_no_filter_is_refused(patterns: list[str], templates: list[Any]) -> None:
    with pytest.raises(Permanent):
        EventFilter(patterns, templates)
