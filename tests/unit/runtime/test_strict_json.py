"""JSON texts are compared as the database compares them."""

import pytest

from packhorse.runtime.strict_json import same_json


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("true", "1", False),
        ('{"a": [0]}', '{"a": [false]}', False),
        ("1", "1.0", True),
        ("1e16", "10000000000000000", True),
        ("12345678901234567.891", "12345678901234567.892", False),
        ('{"a": 1, "b": "x"}', '{"b":"x","a":1}', True),
        ("[1]", "1", False),
        ("[true, null]", "[true,null]", True),
    ],
)
def test_true_is_not_one_and_no_digit_is_lost(one: str, other: str, same: bool) -> None:
    assert same_json(one, other) == same_json(other, one) == same
