"""Queues: how the jobs of some topics are done, and which queue a topic has.

All functions with a connection are called in a transaction as the bookkeeper.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from psycopg import Connection

from packhorse.errors import Permanent, Transient

MAIN = "main"
"""The queue of all topics that no other queue takes; it can be changed, not removed."""
MOST_TOPICS = 10_000
"""Different topics that jobs may be given for; topics are kinds of work, not of things (R30)."""


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
    """How jobs are done (JQ-01…11). Raises `InvalidQueue` or `InvalidName`."""

    name: str
    patterns: tuple[str, ...]
    ranking: int = 0
    """Of the queues that take a topic, the highest wins; then the closest pattern, then the name."""
    type: QueueType = QueueType.ORDERED
    max_parallel: int = -1
    """On one instance; -1: as many as it has cores. Without meaning where ORDERED."""
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
    """The instance that gave a job has `adding.PREFERENCE_S` to begin it before others may."""


@dataclass(frozen=True, slots=True)
class Queue:
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

    queues: dict[str, Queue]
    topics: dict[str, str]


def choose_queue(topic: str, configurations: Iterable[QueueConfiguration]) -> str:
    """Return the name of the queue that takes a topic; one of them must be `main`."""
    raise NotImplementedError


def read_layout(connection: Connection) -> Layout:
    """Return all queues and topics."""
    raise NotImplementedError


def read_queues(connection: Connection) -> list[Queue]:
    """Return all queues, by name."""
    raise NotImplementedError


def get_queue(connection: Connection, name: str) -> Queue:
    """Return a queue. Raises `UnknownQueue`."""
    raise NotImplementedError


def declare_queue(connection: Connection, configuration: QueueConfiguration) -> bool:
    """Make a queue unless there is one of that name, which is left as it is; tell whether made.

    Raises `QueuesBusy`.
    """
    raise NotImplementedError


def put_queue(
    connection: Connection, configuration: QueueConfiguration, version: int | None = None
) -> Queue:
    """Make or change a queue; the waiting jobs of all topics are moved with it, at its commit.

    With a version only that one is changed (0: there must be none yet). Raises `QueueChanged`,
    `InvalidQueue` when `main` would not take all topics, `QueuesBusy`.
    """
    raise NotImplementedError


def remove_queue(connection: Connection, name: str, version: int | None = None) -> None:
    """Remove a queue; its jobs go to the queues that take their topics now.

    Raises `UnknownQueue`, `QueueChanged`, `QueuesBusy`, `InvalidQueue` for `main`.
    """
    raise NotImplementedError


def suspend_queue(
    connection: Connection, name: str, *, suspended: bool, version: int | None = None
) -> Queue:
    """Suspend or resume a queue, for all instances and until told otherwise.

    Raises `UnknownQueue`, `QueueChanged`, `QueuesBusy`.
    """
    raise NotImplementedError


def learn_topics(connection: Connection, topics: Sequence[str]) -> dict[str, str]:
    """Return the queues of topics, choosing one for those that are new. Raises `TooManyTopics`."""
    raise NotImplementedError
