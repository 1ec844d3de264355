"""Which jobs are meant: a group of states, a pattern of topics, and templates of properties.

Pure; `ledger.search` makes a filter a question to the database.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from packhorse.errors import Permanent
from packhorse.jobs.job import FINAL_STATES, JobState
from packhorse.jobs.names import MAX_NAME, require_pattern

MAX_TEMPLATES = 10
"""Templates of one filter."""
MAX_CONDITIONS = 20
"""Conditions of one template."""
MAX_VALUE = 1_024
"""Characters of a property's name, or of a value as JSON, in a condition."""

Template = Mapping[str, Any]
"""Conditions that all hold: an operator and a property's name, and the value to compare with.

`{"size": 3}` or `{"=size": 3}`, `{">=size": 3, "<size": 10}`. A value is a text, a number, true,
false or null. Numbers compare as numbers, texts by their code points; a property of another type
than the value, or that is absent, never matches.
"""


class InvalidFilter(Permanent):
    """A filter that packhorse does not take; the text says what it would."""


class StateGroup(StrEnum):
    """The states that one can look for."""

    ALL = "ALL"
    ACTIVE = "ACTIVE"
    QUEUED = "QUEUED"
    HISTORY = "HISTORY"
    """Every final state."""
    CANCELLED = "CANCELLED"
    """Every final state but SUCCEEDED."""
    SUCCEEDED = "SUCCEEDED"
    STOPPED = "STOPPED"
    GIVEN_UP = "GIVEN_UP"
    ERROR = "ERROR"
    DROPPED = "DROPPED"

    @property
    def states(self) -> tuple[JobState, ...]:
        """The states of the group."""
        if self is StateGroup.ALL:
            return tuple(JobState)
        if self is StateGroup.HISTORY:
            return FINAL_STATES
        if self is StateGroup.CANCELLED:
            return tuple(s for s in JobState if s.final and s is not JobState.SUCCEEDED)
        return (JobState(self.value),)


class Operator(StrEnum):
    """How a property is compared with the value of a template."""

    EQUAL = "="
    LESS = "<"
    AT_MOST = "<="
    MORE = ">"
    AT_LEAST = ">="


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison: `property operator value`, such as `size >= 3`."""

    name: str
    operator: Operator
    value: str | float | bool | None


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs are meant; what is not given does not restrict. Raises `InvalidFilter`.

    Of several templates one must match. A topic is a pattern; raises `InvalidName` for another.
    """

    group: StateGroup = StateGroup.ALL
    topic: str = "**"
    templates: Sequence[Template] = ()
    id: str | None = None
    queue: str | None = None
    instance: str | None = None
    """Who works on it, or has finished it."""
    application: str | None = None
    """Who gave it."""
    schedule: str | None = None
    without: str | None = None
    """A pattern of topics that are not meant."""

    def __post_init__(self) -> None:
        require_pattern(self.topic)
        if self.without is not None:
            require_pattern(self.without)
        parse_templates(self.templates)
        for text in (self.id, self.queue, self.instance, self.application, self.schedule):
            if text is not None and (len(text) > MAX_NAME or not _is_storable(text)):
                raise InvalidFilter(f"a name in a filter has at most {MAX_NAME} characters")


_LEADING = re.compile(r"[=<>!~]*")


def parse_templates(templates: Sequence[Template]) -> tuple[tuple[Condition, ...], ...]:
    """Return the conditions of each template. Raises `InvalidFilter`."""
    if len(templates) > MAX_TEMPLATES:
        raise InvalidFilter(f"a filter has at most {MAX_TEMPLATES} templates")
    if any(len(template) > MAX_CONDITIONS for template in templates):
        raise InvalidFilter(f"a template has at most {MAX_CONDITIONS} conditions")
    return tuple(tuple(_condition(*item) for item in template.items()) for template in templates)


def _condition(key: str, value: Any) -> Condition:
    found = _LEADING.match(key)
    mark = found.group() if found else ""
    name = key[len(mark) :]
    if mark and mark not in tuple(Operator):
        raise InvalidFilter(f"{mark[:80]!r} is no operator: one of {', '.join(Operator)}")
    if not name or len(name) > MAX_VALUE or not _is_storable(name):
        raise InvalidFilter(
            f"{key[:80]!r}: a condition names a property, of at most {MAX_VALUE} characters, "
            "after its operator, such as '>=size'"
        )
    operator = Operator(mark or "=")
    _require_value(name, operator, value)
    return Condition(name, operator, value)


def _require_value(name: str, operator: Operator, value: Any) -> None:
    if not isinstance(value, str | int | float | bool | None):
        raise InvalidFilter(f"{name[:80]!r} is compared with a text, a number, true, false or null")
    if isinstance(value, str) and (len(value) > MAX_VALUE or not _is_storable(value)):
        raise InvalidFilter(f"{name[:80]!r} is compared with a text of {MAX_VALUE} characters")
    if isinstance(value, int | float) and not _is_number(value):
        raise InvalidFilter(f"{name[:80]!r} is compared with a number that JSON can hold")
    if operator is not Operator.EQUAL and (value is None or isinstance(value, bool)):
        raise InvalidFilter(f"{name[:80]!r} is compared with {json.dumps(value)} by '=' alone")


def _is_number(value: float) -> bool:
    return abs(value) < 10**300 if isinstance(value, int) else math.isfinite(value)


def _is_storable(text: str) -> bool:
    """Return whether the database could hold it: no U+0000, no half of a pair."""
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


def topic_range(pattern: str) -> tuple[str, str] | None:
    """Return which topics, from one on and before another, a pattern can mean; None for a name."""
    base = pattern.rstrip("*")
    return None if base == pattern else (base, base[:-1] + "0")  # "0" comes right after "/"


EVERYTHING = JobFilter()
"""The filter that means all jobs."""
