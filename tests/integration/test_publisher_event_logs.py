"""Events when the package topic is made anew, or the author's database restored (R5, R24)."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg import Connection
from psycopg_pool import ConnectionPool

from packhorse.messaging.api import Journal, Outgoing, Record
from packhorse.messaging.memory import shared_log
from packhorse.messaging.open import open_journal
from packhorse.messaging.topics import standard_topics
from packhorse.wire.codec import encode_discovery
from packhorse.wire.messages import (
    Action,
    DiscoveryMessage,
    PackageEntry,
    PackageMessage,
    SubscriberState,
)
from packhorse.wire.package_codec import encode_package
from packhorse_services.publisher.outcomes.cursors import Cursor
from tests.harness.clock import ManualClock
from tests.harness.outcomes import Replica
from tests.harness.publishing import AGENT, TOPICS


class Author:
    """A journal, and the replica that tells its events."""

    def __init__(self, url: str, name: str, pool: ConnectionPool[Connection]) -> None:
        self._name, self.clock = name, ManualClock()
        self.journal: Journal = open_journal(f"memory://{name}", client_name="tests")
        self.journal.create_topics(standard_topics(TOPICS))
        self.replica = Replica(url, self.journal, TOPICS, pool, self.clock)

    def publish(self, count: int) -> None:
        for number in range(count):
            entry = PackageEntry(f"p{number}", AGENT, Action.ADD, (f"/p{number}",))
            package = encode_package(PackageMessage(entry))
            self.journal.append(TOPICS.package, Outgoing(package.value, package.headers)).result()

    def announce(self, offset: int) -> None:
        identity = self.journal.identity(TOPICS.package)
        lane = SubscriberState(AGENT, offset, settled_offset=offset, journal_id=identity)
        told = encode_discovery(DiscoveryMessage("sub1", (lane,)))
        record = Record("", 0, 0, self.clock.wall_ms(), "sub1", told.headers, told.value)
        self.replica.subscribers.note(record, True)

    def make_packages_anew(self) -> None:
        shared_log(self._name).remove_topic(TOPICS.package)
        self.journal.create_topics(standard_topics(TOPICS))

    def notice(self) -> None:
        """Do what the feed's thread does once it sees another log."""
        self.replica.feed.identity = self.journal.identity(TOPICS.package)
        self.replica.feed.cache.reset(0)

    @property
    def events(self) -> int:
        partition = self.journal.partition_of(TOPICS.event, AGENT)
        return self.journal.bounds(TOPICS.event, partition).next


@pytest.fixture
def author(database_url: str, tmp_path: Path) -> Iterator[Author]:
    with ConnectionPool[Connection](database_url, min_size=0, max_size=2, open=True) as pool:
        author = Author(database_url, str(tmp_path), pool)
        yield author
        author.replica.die()


def between_announcements_and_events(author: Author, act: Callable[[], None]) -> None:
    recorder: Any = author.replica._recorder
    record = recorder.record

    def meanwhile(connection: Connection) -> Cursor:
        act()
        found: Cursor = record(connection)
        return found

    recorder.record = meanwhile
    author.replica.keeper.round()
    recorder.record = record


@pytest.mark.parametrize("noticed", [False, True])
def test_r24_no_event_is_told_of_a_log_that_came_during_the_round(
    author: Author, noticed: bool
) -> None:
    author.publish(3)
    author.announce(2)
    author.replica.keeper.round()
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
    author.replica.keeper.round()
    assert author.events == 5
