"""Rules of what history is forgotten, as values and as properties of a job; no I/O."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packhorse.errors import Permanent
from packhorse.jobs.job import JobState
from packhorse.jobs.names import InvalidName, require_pattern

FINAL_STATES = tuple(state for state in JobState if state.final)

_MAX_TOPICS = 20
_MAX_NUMBER = 10**10


class InvalidRule(Permanent):
    """A rule of pruning that makes no sense; the text says why."""


def _require_pattern(topic: str) -> None:
    try:
        require_pattern(topic)
    except InvalidName as error:
        raise InvalidRule(str(error)) from error


@dataclass(frozen=True, slots=True)
class HistoryRule:
    """Which jobs of history are forgotten: those of its topics and states that one limit exceeds.

    Raises `InvalidRule`.
    """

    max_age_s: float | None = None
    """Those that finished longer ago; None: no age is too old."""
    max_count: int | None = None
    """All but so many, the newest of the rule's topics and states; None: none are too many."""
    topics: tuple[str, ...] = ("**",)
    """Patterns."""
    states: tuple[JobState, ...] = FINAL_STATES

    def __post_init__(self) -> None:
        if self.max_age_s is None and self.max_count is None:
            raise InvalidRule("a rule needs max_age_s, max_count or both")
        for number in (self.max_age_s, self.max_count):
            if number is not None and not 0 <= number <= _MAX_NUMBER:
                raise InvalidRule(f"an age in seconds or a count is 0 to {_MAX_NUMBER}")
        if not self.states or not all(state.final for state in self.states):
            raise InvalidRule(f"only final states are pruned: {', '.join(FINAL_STATES)}")
        if not 1 <= len(self.topics) <= _MAX_TOPICS:
            raise InvalidRule(f"a rule has 1 to {_MAX_TOPICS} patterns of topics")
        for topic in self.topics:
            _require_pattern(topic)


DEFAULT_RULE = HistoryRule(max_age_s=7 * 24 * 3600, max_count=1_000_000)
"""A week, as long as the journal remembers, and a million jobs."""


def rule_of(properties: Mapping[str, Any]) -> HistoryRule:
    """Return the rule that a job's properties say: `max_age_s`, `max_count`, `topics`, `states`.

    The default's age and count hold where neither is given. Raises `InvalidRule`.
    """
    unknown = sorted(properties.keys() - {"max_age_s", "max_count", "topics", "states"})
    if unknown:
        raise InvalidRule(f"{unknown[0][:80]!r} is none of max_age_s, max_count, topics, states")
    age = _number(properties, "max_age_s", float)
    count = _number(properties, "max_count", int)
    if age is None and count is None:
        age, count = DEFAULT_RULE.max_age_s, DEFAULT_RULE.max_count
    return HistoryRule(
        max_age_s=age,
        max_count=count if count is None else int(count),
        topics=_texts(properties, "topics", DEFAULT_RULE.topics),
        states=tuple(map(_state, _texts(properties, "states", DEFAULT_RULE.states))),
    )


def _number(properties: Mapping[str, Any], name: str, kind: type[float]) -> float | None:
    value = properties.get(name)
    accepted = (int, float) if kind is float else (int,)
    if value is None or (isinstance(value, accepted) and not isinstance(value, bool)):
        return value
    raise InvalidRule(f"{name} is a number")


def _texts(properties: Mapping[str, Any], name: str, default: tuple[str, ...]) -> tuple[str, ...]:
    value = properties.get(name, default)
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise InvalidRule(f"{name} is a list of texts")
    return tuple(value)


def _state(text: str) -> JobState:
    try:
        return JobState(text)
    except ValueError:
        raise InvalidRule(
            f"{text[:80]!r} is no final state: one of {', '.join(FINAL_STATES)}"
        ) from None
