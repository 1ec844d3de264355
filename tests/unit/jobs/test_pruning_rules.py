"""Rules of what history is forgotten."""

from typing import Any

import pytest

from packhorse.jobs.job import FINAL_STATES, JobState
from packhorse.jobs.ledger.pruning import DEFAULT_RULE, InvalidRule, rule_of


def test_without_properties_it_is_the_default() -> None:
    assert rule_of({}) == DEFAULT_RULE
    assert DEFAULT_RULE.states == FINAL_STATES
    assert set(FINAL_STATES) == set(JobState) - {JobState.QUEUED, JobState.ACTIVE}


def test_a_rule_says_what_its_properties_say() -> None:
    rule = rule_of({"max_age_s": 60, "topics": ["a/*"], "states": ["ERROR", "DROPPED"]})
    assert (rule.max_age_s, rule.max_count, rule.topics) == (60, None, ("a/*",))
    assert rule.states == (JobState.ERROR, JobState.DROPPED)
    assert rule_of({"topics": ["a"]}).max_age_s == DEFAULT_RULE.max_age_s


@pytest.mark.parametrize(
    ("properties", "reported"),
    [
        ({"max_age": 1}, "'max_age' is none of"),
        ({"max_age_s": "1"}, "max_age_s is a number"),
        ({"max_count": 1.5}, "max_count is a number"),
        ({"max_count": True}, "max_count is a number"),
        ({"max_age_s": -1}, "is 0 to"),
        ({"max_age_s": float("nan")}, "is 0 to"),
        ({"max_count": 10**20}, "is 0 to"),
        ({"topics": "a"}, "topics is a list of texts"),
        ({"topics": [1]}, "topics is a list of texts"),
        ({"topics": []}, "1 to 20 patterns"),
        ({"topics": ["a"] * 21}, "1 to 20 patterns"),
        ({"topics": ["a/*/b"]}, "is no pattern of topics"),
        ({"states": ["DONE"]}, "'DONE' is no final state: one of SUCCEEDED"),
        ({"states": ["ACTIVE"]}, "only final states"),
        ({"states": []}, "only final states"),
    ],
)
def test_what_makes_no_sense_is_refused(properties: dict[str, Any], reported: str) -> None:
    with pytest.raises(InvalidRule, match=reported):
        rule_of(properties)
