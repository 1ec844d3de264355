"""Events when a topic is made anew or too small, or a database restored or wrong (R5, R24)."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from psycopg import Connection
from psycopg_pool import ConnectionPool

from packhorse.db.transactions import bookkeeping
from packhorse.messaging.api import (
    Appended,
    Journal,
    NotAppended,
    Outgoing,
    Record,
    RecordTooLarge,
)
from packhorse.messaging.deduplication import ProducerFenced
from packhorse.messaging.memory import shared_log
from packhorse.messaging.open import open_journal
from packhorse.messaging.topics import standard_topics
from packhorse.runtime.metrics import PUBLISHER_EVENTS_LOST, PUBLISHER_EVENTS_MISSED
from packhorse.wire.codec import encode_discovery
from packhorse.wire.messages import (
    Action,
    DiscoveryMessage,
    PackageEntry,
    PackageMessage,
    SubscriberState,
)
from packhorse.wire.package_codec import encode_package
from packhorse.wire.topics import MAX_RECORD_BYTES
from packhorse_services.publisher.assembly.outcome_parts import next_epoch
from packhorse_services.publisher.outcomes import packages_in_range
from packhorse_services.publisher.outcomes.event_log import DatabaseSnapshots, EventAppender
from packhorse_services.publisher.outcomes.progress import TopicCursor, read_cursor
from tests.harness.clock import ManualClock
from tests.harness.deduplication import MemorySnapshots
from tests.harness.journals import everything
from tests.harness.outcome_replica import Replica
from tests.harness.publishing import AGENT, TOPICS
from tests.harness.waiting import eventually


class Author:
    """A journal, and the replica that publishes its events."""

    def __init__(self, url: str, name: str, pool: ConnectionPool[Connection]) -> None:
        self._url, self._name, self._pool, self.clock = url, name, pool, ManualClock()
        self.journal: Journal = open_journal(f"memory://{name}", client_name="tests")
        self.journal.create_topics(standard_topics(TOPICS))
        self.replica = self._new_replica()

    def _new_replica(self) -> Replica:
        return Replica(self._url, self.journal, TOPICS, self._pool, self.clock)

    def restart(self) -> None:
        self.replica.die()
        self.replica = self._new_replica()

    def publish(self, count: int) -> None:
        for number in range(count):
            entry = PackageEntry(f"p{number}", AGENT, Action.ADD, (f"/p{number}",))
            package = encode_package(PackageMessage(entry))
            self.journal.append(TOPICS.package, Outgoing(package.value, package.headers)).result()

    def announce(self, offset: int) -> None:
        identity = self.journal.identity(TOPICS.package)
        subscription = SubscriberState(AGENT, offset, settled_offset=offset, journal_id=identity)
        reported = encode_discovery(DiscoveryMessage("sub1", (subscription,)))
        record = Record("", 0, 0, self.clock.wall_ms(), "sub1", reported.headers, reported.value)
        self.replica.subscribers.note(record, True)

    def make_packages_anew(self) -> None:
        shared_log(self._name).remove_topic(TOPICS.package)
        self.journal.create_topics(standard_topics(TOPICS))

    def resize_events(self, size: int) -> None:
        topic = shared_log(self._name).topic(TOPICS.event)
        topic.spec = replace(topic.spec, max_record_bytes=size)

    def notice(self) -> None:
        """Do what the feed's thread does once it sees another log."""
        self.replica.feed.identity = self.journal.identity(TOPICS.package)
        self.replica.feed.cache.reset(0)

    @property
    def events(self) -> int:
        partition = self.journal.partition_of(TOPICS.event, AGENT)
        return self.journal.bounds(TOPICS.event, partition).next

    @property
    def cursor(self) -> int:
        with self._pool.connection() as connection, bookkeeping(connection):
            cursor = read_cursor(connection, AGENT, TOPICS.event)
        assert cursor is not None
        return cursor.offset


@pytest.fixture
def author(database_url: str, tmp_path: Path) -> Iterator[Author]:
    with ConnectionPool[Connection](database_url, min_size=0, max_size=2, open=True) as pool:
        author = Author(database_url, str(tmp_path), pool)
        yield author
        author.replica.die()


def between_announcements_and_events(author: Author, act: Callable[[], None]) -> None:
    recorder: Any = author.replica._recorder
    record = recorder.record

    def meanwhile(connection: Connection) -> TopicCursor:
        act()
        found: TopicCursor = record(connection)
        return found

    recorder.record = meanwhile
    author.replica.outcome_loop.round()
    recorder.record = record


@pytest.mark.parametrize("noticed", [False, True])
def test_r24_no_event_is_published_of_a_log_that_came_during_the_round(
    author: Author, noticed: bool
) -> None:
    author.publish(3)
    author.announce(2)
    author.replica.outcome_loop.round()
    assert author.events == 3
    author.publish(3)
    author.announce(5)

    def made_anew() -> None:
        author.make_packages_anew()
        author.publish(6)
        if noticed:
            author.replica._recorder.close()
            author.notice()

    between_announcements_and_events(author, made_anew)
    assert author.events == 3, "nobody has any of the new packages"
    author.replica._recorder.close()
    author.notice()
    author.announce(1)
    author.replica.outcome_loop.round()
    assert author.events == 5


def test_events_that_the_topic_refuses_wait_until_its_limit_is_raised(author: Author) -> None:
    author.resize_events(10)
    author.publish(3)
    author.announce(2)
    for _ in range(3):
        assert not author.replica.outcome_loop.try_round(), "statuses are recorded nevertheless"
        author.clock.advance(5)
    assert author.events == 0
    with pytest.raises(RecordTooLarge, match=TOPICS.event):
        author.replica.outcome_loop.check_events()

    author.resize_events(MAX_RECORD_BYTES)
    author.clock.advance(5)
    author.replica.outcome_loop.try_round()
    assert author.events == 3
    author.replica.outcome_loop.check_events()


def test_a_subscriber_that_says_more_than_there_is_keeps_no_event_back(author: Author) -> None:
    for count in (1, 2):
        author.publish(1)
        author.announce(1_000_000)
        author.replica.outcome_loop.round()
        assert author.events == count


def test_packages_that_left_the_log_without_an_event_are_counted_once(author: Author) -> None:
    author.publish(3)
    before = PUBLISHER_EVENTS_MISSED._value.get()
    for oldest, done in ((0, 0), (2, 1), (2, 1), (2, 2)):
        author.journal.truncate(TOPICS.package, oldest)
        author.announce(done)
        author.replica.outcome_loop.round()
    assert author.events == 2
    assert PUBLISHER_EVENTS_MISSED._value.get() == before + 1


@pytest.mark.parametrize("in_memory", [True, False])
def test_more_than_one_batch_of_events_is_published_without_a_pause(
    author: Author, in_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages_in_range, "_BATCH", 2)
    author.publish(5)
    author.announce(4)
    if in_memory:
        author.replica.tail()
    loop = author.replica.outcome_loop
    for events, goes_on in ((2, True), (4, True), (5, False)):
        loop._wake.clear()
        assert loop.round()
        assert (author.events, loop._wake.is_set()) == (events, goes_on)


def test_the_cursor_of_events_never_goes_back(author: Author) -> None:
    author.publish(3)
    for done in (2, 0):  # its database was restored
        author.announce(done)
        assert eventually(author.replica.outcome_loop.round, what="the lock")
        author.restart()
    assert author.cursor == 2


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    journal = open_journal(f"memory://{tmp_path}", client_name="tests")
    journal.create_topics(standard_topics(TOPICS))
    return journal


def reported(journal: Journal) -> list[bytes]:
    return [record.value for record in everything(journal, TOPICS.event)]


def event(offset: int) -> tuple[int, Outgoing]:
    return offset, Outgoing(b"%d" % offset, {}, AGENT)


def test_r5_events_go_on_at_once_after_the_database_was_restored(
    database_url: str, journal: Journal
) -> None:
    with ConnectionPool[Connection](database_url, min_size=0, max_size=2, open=True) as pool:
        epochs = partial(next_epoch, pool)
        before = max(epochs(0) + 3_000, 5_000)
        old = EventAppender(journal, TOPICS.event, AGENT, MemorySnapshots(), lambda _: before)
        old.append("log", [event(0)])
        restored = EventAppender(journal, TOPICS.event, AGENT, DatabaseSnapshots(pool), epochs)
        with pytest.raises(ProducerFenced):
            restored.append("log", [event(0), event(1)])
        restored.append("log", [event(0), event(1)])
        assert reported(journal) == [b"0", b"1"]
        assert epochs(0) > before


def test_r5_events_of_logs_with_long_names_are_distinguished(journal: Journal) -> None:
    log = EventAppender(journal, TOPICS.event, AGENT, MemorySnapshots(), lambda above: above + 1)
    for end in "xy":
        for _ in range(2):
            log.append("n" * 300 + end, [event(0)])
    assert reported(journal) == [b"0", b"0"]


class LossyJournal:
    """A journal that fails the first append, but only after the second is in the log."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._first: Future[Appended] | None = None

    def append(self, topic: str, record: Outgoing) -> Future[Appended]:
        if self._first is None:
            self._first = Future()
            return self._first
        appended = self._journal.append(topic, record)
        if not self._first.done():
            self._first.set_exception(NotAppended("no room"))
        return appended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


def test_an_event_that_can_never_be_reported_is_counted_as_lost(journal: Journal) -> None:
    lossy: Any = LossyJournal(journal)
    log = EventAppender(lossy, TOPICS.event, AGENT, MemorySnapshots(), lambda above: above + 1)
    before = PUBLISHER_EVENTS_LOST._value.get()
    log.append("log", [event(0), event(1)])
    log.append("log", [event(0), event(1), event(2)])
    assert reported(journal) == [b"1", b"2"]
    assert PUBLISHER_EVENTS_LOST._value.get() == before + 1
