"""Conditions as people type them become templates."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhorse.jobs.conditions import template_of
from packhorse.jobs.filters import InvalidFilter, Template

OPERATORS = ["=", "<", "<=", ">", ">="]
NAMES = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=20)
VALUES = (
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
    | st.integers(-(10**12), 10**12)
    | st.floats(-1e9, 1e9)
)


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("size>=10", ">=size", 10),
        ("size < 2.5", "<size", 2.5),
        ("color=red", "=color", "red"),
        ('size="10"', "=size", "10"),
        ("done=true", "=done", True),
        ("owner=null", "=owner", None),
        ("path=/content/a=b", "=path", "/content/a=b"),
        ("list=[1]", "=list", "[1]"),
        ("size=NaN", "=size", "NaN"),
        ("note=", "=note", ""),
    ],
)
def test_a_condition_is_an_operator_with_a_property_and_a_value(
    text: str, key: str, value: object
) -> None:
    assert template_of([text]) == {key: value}


@pytest.mark.parametrize("text", ["", "size", "=3", "size!=3", "size=>3", "size~3", "a<true"])
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(InvalidFilter):
        template_of([text])


def test_several_conditions_hold_together_and_do_not_contradict() -> None:
    assert template_of(["size>=1", "size<9"]) == {">=size": 1, "<size": 9}
    assert template_of(["size=1", "size=1.0"]) == {"=size": 1}
    for texts in (["size=1", "size=2"], ["size=1", "size=true"], ["size=0", "size=false"]):
        with pytest.raises(InvalidFilter, match="another value"):
            template_of(texts)


@given(st.dictionaries(st.tuples(st.sampled_from(OPERATORS), NAMES), VALUES, max_size=5))
def test_what_is_written_is_read_as_it_was(conditions: dict[tuple[str, str], object]) -> None:
    template: Template = {"".join(key): value for key, value in conditions.items()}
    texts = [f"{name}{op}{json.dumps(value)}" for (op, name), value in conditions.items()]
    assert template_of(texts) == template
