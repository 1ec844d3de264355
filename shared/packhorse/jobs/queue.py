"""What a queue is: how the jobs of some topics are done; and which queue takes a topic."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from packhorse.errors import Permanent, Transient
from packhorse.jobs.names import closeness, matches, require_name, require_pattern

MAIN = "main"
"""The queue of all topics that no other queue takes; it can be changed, not removed."""
MOST_TOPICS = 10_000
"""Different topics that jobs may be given for; topics are kinds of work, not of things (R30)."""
MOST_PATTERNS = 100
_LONGEST_S = 365 * 86_400


class QueueType(StrEnum):
    """In which order, and how many at a time."""

    ORDERED = "ORDERED"
    """One at a time in the whole cluster, in the order in which they were given."""
    UNORDERED = "UNORDERED"
    """Many at a time, the highest priority first, then the oldest."""
    TOPIC_ROUND_ROBIN = "TOPIC_ROUND_ROBIN"
    """Many at a time; topics take turns."""


class UnknownQueue(Permanent):
    """There is no such queue."""


class InvalidQueue(Permanent):
    """A configuration that makes no sense; the text says why."""


class QueueChanged(Permanent):
    """The queue has another version than the one that was to be changed; read it again."""


class QueuesBusy(Transient):
    """A transaction that gives jobs for new topics has not ended yet."""


class TooManyTopics(Permanent):
    """Jobs were given for `MOST_TOPICS` topics already."""


@dataclass(frozen=True, slots=True)
class QueueConfiguration:
    """How jobs are done. Raises `InvalidQueue` or `InvalidName`."""

    name: str
    patterns: tuple[str, ...]
    ranking: int = 0
    """Of the queues that take a topic the highest wins; then the closest pattern, then the name."""
    type: QueueType = QueueType.ORDERED
    max_parallel: int = -1
    """On one instance; -1: 15, or its number of cores if higher. Without meaning where ORDERED."""
    max_retries: int = 10
    """Failed attempts beyond the first; -1: without end. A job may say another number."""
    retry_delay_s: float = 2.0
    """After the first failure; it doubles with each one more."""
    max_retry_delay_s: float = 3600.0
    timeout_s: float | None = None
    """How long an attempt may last."""
    keep_history: bool = True
    """False: SUCCEEDED jobs without an id are forgotten at once."""
    prefer_creator: bool = False
    """The instance that gave a job has `given.PREFERENCE_S` to begin it before others may."""

    def __post_init__(self) -> None:
        require_name(self.name, "queue")
        for pattern in self.patterns:
            require_pattern(pattern)
        seconds = (self.retry_delay_s, self.max_retry_delay_s, self.timeout_s or 1.0)
        _require(0 < len(self.patterns) <= MOST_PATTERNS, f"1 to {MOST_PATTERNS} patterns")
        _require(-(2**31) <= self.ranking < 2**31, "a ranking of 32 bits")
        _require(
            self.max_parallel == -1 or 0 < self.max_parallel <= 1_000,
            "max_parallel -1, or 1 to 1000",
        )
        _require(-1 <= self.max_retries <= 1_000_000, "max_retries -1, or 0 to 1000000")
        _require(all(0 <= s <= _LONGEST_S for s in seconds), "delays of 0 s to a year")
        _require(
            self.timeout_s is None or self.timeout_s > 0, "a timeout_s of more than 0, or none"
        )


@dataclass(frozen=True, slots=True)
class JobQueue:
    """A queue as it is stored."""

    configuration: QueueConfiguration
    suspended: bool
    """No job of it is begun, on any instance; those under way end."""
    version: int
    """Grows with every change, for ETags."""
    changed_at: datetime

    @property
    def name(self) -> str:
        """Its name."""
        return self.configuration.name


@dataclass(frozen=True, slots=True)
class Layout:
    """All queues, and the queue of every known topic, at one moment."""

    queues: dict[str, JobQueue]
    topics: dict[str, str]


def _require(fulfilled: bool, what: str) -> None:
    if not fulfilled:
        raise InvalidQueue(f"a queue has {what}")


def choose_queue(topic: str, configurations: Iterable[QueueConfiguration]) -> str:
    """Return the name of the queue that takes a topic; one of them must take all."""
    taking = [
        (-configuration.ranking, *closeness(pattern), configuration.name)
        for configuration in configurations
        for pattern in configuration.patterns
        if matches(pattern, topic)
    ]
    return min(taking)[-1]
