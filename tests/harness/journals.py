"""The journals that the contract suite runs on, one class a backend.

A new backend is a class here, a session fixture in `tests/contract/conftest.py` called
`<name>_backend`, and its name in the list `JOURNALS` there.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import psycopg
from confluent_kafka.admin import AdminClient

from packhorse.db.engine import Timeouts
from packhorse.messaging.api import (
    Appended,
    Journal,
    JournalUnavailable,
    LogEnd,
    Outgoing,
    Reader,
    Record,
    TopicSpec,
)
from packhorse.messaging.memory import shared_log
from packhorse.messaging.open import open_journal
from packhorse.messaging.sql.journal import SqlJournal
from packhorse.messaging.sql.segments import DEFAULT_LIMITS, SegmentLimits
from tests.harness.waiting import eventually

T = TypeVar("T")

DEADLINE_S = 180.0
"""How long a test waits for what must come; never how long it waits for luck."""
PATIENT = Timeouts(statement_ms=int(DEADLINE_S * 1000), lock_ms=int(DEADLINE_S * 1000))
"""`APPENDER_TIMEOUTS` for appenders that wait for a lock while the test holds it."""


class JournalBackend(Protocol):
    """One real journal, and what a test must do to it from outside."""

    url: str

    def open(self) -> Journal:
        """Return a new connection to the journal."""
        ...

    def remove_topic(self, topic: str) -> None:
        """Remove a topic as an operator would; the port has no such call."""
        ...


@dataclass
class MemoryBackend:
    """The journal in this process."""

    url: str = "memory://contract"

    def open(self) -> Journal:
        return open_journal(self.url, client_name="contract")

    def remove_topic(self, topic: str) -> None:
        shared_log("contract").remove_topic(topic)


@dataclass
class SqlBackend:
    """The journal in a migrated database; tiny segments put every test across their borders."""

    url: str
    limits: SegmentLimits = DEFAULT_LIMITS

    def open(self) -> Journal:
        return SqlJournal(self.url, "contract", self.limits)

    def remove_topic(self, topic: str) -> None:
        with psycopg.connect(self.url) as connection:
            connection.execute("DELETE FROM journal.topic WHERE name = %s", (topic,))


@dataclass
class KafkaBackend:
    """The journal on a real broker."""

    url: str

    def open(self) -> Journal:
        return open_journal(self.url, client_name="contract")

    def remove_topic(self, topic: str) -> None:
        client = AdminClient({"bootstrap.servers": self.url.removeprefix("kafka://")})
        (removed,) = client.delete_topics([topic]).values()
        removed.result(DEADLINE_S)


_NUMBERS = itertools.count()


@dataclass
class JournalOpener:
    """What a test works with: a journal, fresh topics, and more journals on the same log."""

    backend: JournalBackend
    opened: list[Journal] = field(default_factory=list)

    def open(self) -> Journal:
        """Return another connection to the same journal; it is closed with the test."""
        journal = self.backend.open()
        self.opened.append(journal)
        return journal

    def close(self) -> None:
        for journal in self.opened:
            journal.close()


def fresh_name() -> str:
    """Return a topic name that no test has had, whatever the journal holds already."""
    return f"t{time.time_ns()}_{next(_NUMBERS)}"


def create(
    journal: Journal,
    *,
    partitions: int = 1,
    retention_ms: int = 3600_000,
    max_record_bytes: int = 1024 * 1024,
) -> str:
    """Create a fresh topic and return its name."""
    name = fresh_name()
    create_topic(journal, TopicSpec(name, partitions, retention_ms, max_record_bytes))
    return name


def create_topic(journal: Journal, topic: TopicSpec) -> None:
    """Create a topic; on a busy broker it may have no leader at first, and is asked for again."""

    answered(lambda: journal.create_topics([topic]))


def answered(ask: Callable[[], T]) -> T:
    """Return what a journal answers; one that is away for a moment is asked again."""

    def answer() -> tuple[T]:
        try:
            return (ask(),)
        except JournalUnavailable as error:
            raise AssertionError(str(error)) from error

    return eventually(answer, timeout=DEADLINE_S)[0]


def append_all(
    journal: Journal, topic: str, values: Sequence[bytes], key: str | None = None
) -> list[Appended]:
    """Append the values in order and wait for all of them."""
    futures = [journal.append(topic, Outgoing(value, key=key)) for value in values]
    return [future.result(DEADLINE_S) for future in futures]


def everything(journal: Journal, topic: str) -> list[Record]:
    """Return every record that the log holds now, partition by partition."""
    partitions = range(answered(lambda: journal.partitions(topic)))
    return [one for partition in partitions for one in _everything(journal, topic, partition)]


def _everything(journal: Journal, topic: str, partition: int) -> list[Record]:
    bounds = answered(lambda: journal.bounds(topic, partition))
    records: list[Record] = []
    if bounds.oldest < bounds.next:
        with journal.reader(topic, LogEnd.OLDEST, partition=partition) as reader:
            deadline = time.monotonic() + DEADLINE_S
            while reader.position(partition) < bounds.next:
                assert time.monotonic() < deadline, f"{topic} ends at {bounds.next}: {records[-1:]}"
                records += polled(reader)
    return records


def polled(reader: Reader, timeout: float = 1.0, **limits: int) -> Sequence[Record]:
    """Return what a poll gives; nothing while the journal is away, as a busy broker may be."""
    try:
        return reader.poll(timeout, **limits)
    except JournalUnavailable:
        return ()


def read_until(reader: Reader, count: int, **limits: int) -> list[Record]:
    """Poll until `count` records came; fewer at the deadline is a failure."""
    records: list[Record] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(records) < count and time.monotonic() < deadline:
        records.extend(polled(reader, **limits))
    assert len(records) >= count, f"{len(records)} of {count} records came"
    return records
