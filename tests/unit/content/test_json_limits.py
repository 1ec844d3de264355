"""Which JSON a repository takes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhorse.content.json_limits import MAX_DEPTH, check_exponents, check_json
from packhorse.content.node import InvalidNode

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=10,
)


@given(values)
def test_r30_ordinary_json_is_taken(value: Any) -> None:
    check_json(json.dumps(value))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1, "a": 2}', "twice"),
        ('{"a": {"b": 1, "b": 1}}', "twice"),
        ("[NaN]", "NaN"),
        ("[-Infinity]", "Infinity"),
        ("[1e309]", "exponent"),
        ("[-1.5E-325]", "exponent"),
        ("[1e" + "9" * 300 + "]", "exponent"),
        ("[" + "1" * 401 + "]", "401 characters"),
        ("[" + "1e308," * 3_500 + "1]", "too many digits"),
        ('["\\u0000"]', "U\\+0000"),
        ('{"a\\u0000": 1}', "U\\+0000"),
        ('["\\udc00"]', "surrogate"),
        ('{"\\ud800": 1}', "surrogate"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "deeper"),
        ('{"a":' * 200 + "1" + "}" * 200, "deeper"),
        ("[" * 100_000, "deeper"),
        ("{", "stored"),
        ("", "stored"),
    ],
)
def test_r30_what_is_refused_has_a_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidNode, match=reason):
        check_json(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[1e131071]", "exponent"),
        ("[1E+131071]", "exponent"),
        ("[1.5e-16000]", "exponent"),
        ("[1e-131071]", "exponent"),
        ("[1E-131071]", "exponent"),
        ("[1e+131071]", "exponent"),
        ("[1e0000000000131071]", "exponent"),
        ('{"a": 1e131071}', "exponent"),
        ('{"a":-1e131071}', "exponent"),
        ('{"id": "3e0f", "a": [1,\n\t 1e131071]}', "exponent"),
        ('{"a": [1,' + " " * 200 + "1e131071]}", "exponent"),
        ('{"a": 0.' + "1" * 200 + "e131071}", "exponent"),
        ("[1e" + "0" * 5_000 + "9]", "stored"),
        (r'["\\", 1e131071, "\""]', "exponent"),
        (r'{"a\"": "\\\"1e5\\\\", "b": [1.5E-16000]}', "exponent"),
        ("[" + "1e308," * 3_500 + "1]", "too many digits"),
        ("[" * 100_000 + "1e5", "deeply"),
        ("1e5}", "stored"),
    ],
)
def test_r30_exponents_that_grow_are_found(text: str, reason: str) -> None:
    with pytest.raises(InvalidNode, match=reason):
        check_exponents(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        '{"id": "0e0", "n": 1e5}',
        '{"id": "73e0f1e5-3e1a-4e11", "text": "12e9999999 of: 1e5, or [1e5"}',
        '{"id": "1-e012", "n": 1e-5}',
        "[" + "1" * 5_000 + ', 1e0, "ü"]',
        '{"a": 1.50, "b": "e-2"}',
        r'["\"1e131071\"", "\\", "\\\"[1e131071"]',
    ],
)
def test_what_a_database_writes_is_taken_whatever_its_length(text: str) -> None:
    check_exponents(text.encode())


@given(values)
def test_r30_an_exponent_is_found_wherever_it_is(value: Any) -> None:
    text = json.dumps([value, "placeholder", value]).replace('"placeholder"', "1e131071")
    with pytest.raises(InvalidNode, match="exponent"):
        check_exponents(text.encode())


def test_the_deepest_that_is_taken() -> None:
    check_json("[" * MAX_DEPTH + "1" + "]" * MAX_DEPTH)
    check_json('["\\ud83d\\udc0e"]')
    check_json("[1e308, 5e-324, 12345678901234567890.123456789]")
