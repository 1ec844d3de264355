"""No part of a request can make the service compute for long: bounds and patterns in the code.

A header has up to 64 KiB. A pattern that backtracks over it holds the whole process for minutes.
"""

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SERVING = [
    *(ROOT / "shared" / "packhorse").rglob("*.py"),
    *(
        path
        for path in (ROOT / "services" / "packhorse_services").rglob("*.py")
        if "pipeline" not in path.parts or "reports" in path.parts
        if "cli" not in path.parts
    ),
]
"""The modules of which some code meets requests."""

BOUNDED = {
    "packhorse.jobs.conditions._CONDITION": "three kinds of characters that exclude each other",
    "packhorse.runtime.setting_names._KUBERNETES": "names of variables, no request",
    "packhorse.jobs.names._NUL": "it begins only where a row of backslashes begins",
    "packhorse.jobs.events.position._TEXT": "the header has a longest length, digits and commas",
    "packhorse_services.topology.connectors.allow_list._ADDRESS_PATTERN": "a setting, no request",
    "packhorse.content.json_limits._EXPONENT": "a number that JSON's parser has found",
    "packhorse.jobs.names._TOPIC": "segments can't hold the slash between them",
    "packhorse.runtime.url_secrets._PASSWORD": "a setting, no request",
    "packhorse.runtime.url_secrets._PASSWORD_ELSEWHERE": "a setting, no request",
    "packhorse.runtime.url_secrets._OPTION": "a setting, no request",
}
"""Patterns that the rule below forbids, and why each of them is quick all the same."""

REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT)
SEARCHING = {"search", "sub", "subn", "split", "findall", "finditer"}


def dotted(path: Path) -> str:
    steps = path.with_suffix("").parts
    return ".".join(steps[max(steps.index(one) for one in steps if one.startswith("packhorse")) :])


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def calls(path: Path) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree(path)) if isinstance(node, ast.Call))


def repeats(pattern: Any) -> tuple[int, bool]:
    """Return how many unbounded repeats follow each other, and whether one holds another."""
    most, nested = 0, False
    for code, value in pattern:
        if code in REPEATS:
            inside, deeper = repeats(value[2])
            unbounded = value[1] is codes.MAXREPEAT
            nested |= deeper or (unbounded and inside > 0)
            most += inside + unbounded
        elif code is codes.BRANCH:
            found = [repeats(branch) for branch in value[1]]
            most += max(count for count, _ in found)
            nested |= any(deeper for _, deeper in found)
        elif code is codes.SUBPATTERN:
            inside, deeper = repeats(value[3])
            most, nested = most + inside, nested or deeper
        elif code in (codes.ASSERT, codes.ASSERT_NOT):
            inside, deeper = repeats(value[1])
            most, nested = most + inside, nested or deeper
    return most, nested


def is_slow(pattern: str | bytes, *, searched: bool) -> bool:
    """Return whether a failure may cost more than one step a character.

    A search begins anew at every character, so that one repeat is too many for it.
    """
    most, nested = repeats(parser.parse(pattern))
    return nested or most > (0 if searched else 1)


def patterns() -> Iterator[tuple[str, str | bytes, bool]]:
    """Every compiled pattern of a module, and whether the module searches with it."""
    for path in SERVING:
        if "re.compile" not in path.read_text():
            continue
        module = importlib.import_module(dotted(path))
        used = [call.func for call in calls(path) if isinstance(call.func, ast.Attribute)]
        for name, value in vars(module).items():
            own = getattr(value, "__self__", value)
            if isinstance(own, re.Pattern) and f"{name} = " in path.read_text():
                searched = any(
                    isinstance(one.value, ast.Name) and one.value.id == name
                    for one in used
                    if one.attr in SEARCHING
                )
                yield f"{dotted(path)}.{name}", own.pattern, searched


def test_no_pattern_backtracks_over_what_a_caller_sends() -> None:
    slow = {name for name, pattern, searched in patterns() if is_slow(pattern, searched=searched)}
    assert slow == set(BOUNDED)


def test_patterns_are_compiled_where_this_test_sees_them() -> None:
    found = {
        f"{dotted(path)}:{call.lineno}"
        for path in SERVING
        if re.search(r"\bre\.(?!(?:compile|escape|fullmatch)\b)\w", path.read_text())
        for call in calls(path)
        if isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "re"
        and call.func.attr not in ("compile", "escape", "fullmatch")
    }
    assert not found


@pytest.mark.parametrize("source", ["Header", "Cookie"])
def test_every_header_has_a_longest_length(source: str) -> None:
    bounds = {"max_length", "pattern", "ge", "le"}
    unbounded = {
        f"{dotted(path)}:{call.lineno}"
        for path in SERVING
        if "fastapi" in (text := path.read_text()) and f"{source}(" in text
        for call in calls(path)
        if isinstance(call.func, ast.Name) and call.func.id == source
        if not bounds & {keyword.arg for keyword in call.keywords}
    }
    assert not unbounded


@pytest.mark.parametrize(
    ("pattern", "searched"),
    [
        (r'\s*(W/)?"([^"]*)"\s*(?:,|$)', True),
        (r"a+b", True),
        (r"(a+)+", False),
        (r"\s*x\s*", False),
        (r"(?:a|b*)c*", False),
    ],
)
def test_the_rule_finds_patterns_that_backtrack(pattern: str, searched: bool) -> None:
    assert is_slow(pattern, searched=searched)
    assert not is_slow(pattern.replace("*", "{0,9}").replace("+", "{1,9}"), searched=searched)
