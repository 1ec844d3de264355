"""Which properties of jobs and events are taken."""

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pytest

from packhorse.jobs.names import MAX_PROPERTIES, InvalidProperties, require_properties
from packhorse.jobs.store.given import as_json


@dataclass
class Measured:
    size: float


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"path": "C:\\u0000"},
        {"nothing": None, "of": Measured(1.5)},
        {"path": "\\\\u0000"},
        {"large": [1e308] * 200, "text": "1e308," * 1_000},
        {"text": "x" * (MAX_PROPERTIES - len('{"text":""}'))},
        MappingProxyType({"an": "event's"}),
    ],
)
def test_these_are_taken(properties: Any) -> None:
    assert require_properties(properties) is properties
    assert as_json(properties)


@pytest.mark.parametrize(
    ("properties", "reported"),
    [
        ([1], "not list"),
        ("{}", "not str"),
        ({"a": object()}, "JSON object"),
        ({"a": 2**64}, "JSON object"),
        ({"a": "\ud800"}, "JSON object"),
        ({"text": "x" * MAX_PROPERTIES}, str(MAX_PROPERTIES)),
        ({"large": [1e308] * 300}, "too many digits"),
        ({"a": "b\0"}, r"U\+0000"),
        ({"a": "\\\0"}, r"U\+0000"),
        ({"\0": 1}, r"U\+0000"),
        ({"v": math.nan}, "'v' is nan, which JSON can't hold"),
        ({"a": None, "b": [{"deep": (1.0, -math.inf)}]}, "'deep' is -inf"),
        ({"of": Measured(math.inf)}, "'size' is inf"),
    ],
)
def test_these_are_refused(properties: Any, reported: str) -> None:
    with pytest.raises(InvalidProperties, match=reported):
        require_properties(properties)
