"""Which events a handler hears: patterns of topics, and templates of properties. Pure."""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from packhorse.jobs.event import Event
from packhorse.jobs.filters import Condition, InvalidFilter, Operator, Template, parse_templates
from packhorse.jobs.names import matches, require_pattern

_ABSENT = object()
_COMPARE: Mapping[Operator, Callable[[Any, Any], bool]] = {
    Operator.EQUAL: operator.eq,
    Operator.LESS: operator.lt,
    Operator.AT_MOST: operator.le,
    Operator.MORE: operator.gt,
    Operator.AT_LEAST: operator.ge,
}


@dataclass(frozen=True, slots=True)
class EventFilter:
    """One of the patterns covers the topic, and one of the templates, if any, the properties.

    Raises `InvalidName` or `InvalidFilter`. Templates are those of jobs' filters.
    """

    patterns: Sequence[str]
    templates: Sequence[Template] = ()
    _conditions: tuple[tuple[Condition, ...], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.patterns:
            raise InvalidFilter("events are subscribed to by one pattern of topics or more")
        for pattern in self.patterns:
            require_pattern(pattern)
        object.__setattr__(self, "_conditions", parse_templates(self.templates))

    def covers(self, event: Event) -> bool:
        """Return whether the event is wanted."""
        if not any(matches(pattern, event.topic) for pattern in self.patterns):
            return False
        return not self._conditions or any(
            all(_holds(condition, event.properties) for condition in template)
            for template in self._conditions
        )


def _holds(condition: Condition, properties: Mapping[str, Any]) -> bool:
    value = properties.get(condition.name, _ABSENT)
    if _kind(value) is not _kind(condition.value):
        return False
    return _COMPARE[condition.operator](value, condition.value)


def _kind(value: Any) -> object:
    """Return what values are compared among: true is no number, and 1 and 1.0 are the same."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float
    return type(value)
