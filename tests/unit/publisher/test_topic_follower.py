"""A follower has caught up when every partition was read to its end, and not before."""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Self

import pytest

from packhorse.clock import Clock, SystemClock
from packhorse.messaging.api import JournalUnavailable, Outgoing, Reader, Record, TopicSpec
from packhorse.messaging.memory import MemoryJournal, MemoryLog
from packhorse_services.publisher.queues.topic_follower import NotCaughtUp, TopicFollower
from tests.harness.clock import ManualClock
from tests.harness.publishing import JournalDouble
from tests.harness.waiting import eventually


class ReaderDouble:
    """A reader of which only `poll` is replaced."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)


class SlowReader(ReaderDouble):
    """Like Kafka's at first: it polls in vain, and then returns one record a poll."""

    def __init__(self, reader: Reader, polls: list[int]) -> None:
        super().__init__(reader)
        self._polls = polls

    def poll(self, timeout: float) -> Sequence[Record]:
        self._polls.append(1)
        return () if len(self._polls) % 3 else self._reader.poll(timeout, max_records=1)


class SlowJournal(JournalDouble):
    polls: list[int]

    def reader(self, *arguments: Any, **options: Any) -> Any:
        return SlowReader(self._journal.reader(*arguments, **options), self.polls)


@pytest.fixture
def journal() -> SlowJournal:
    journal = SlowJournal(MemoryJournal(MemoryLog()))
    journal.polls = []
    journal.create_topics([TopicSpec("topic", partitions=3)])
    return journal


def follow(
    journal: JournalDouble, clock: Clock | None = None
) -> tuple[TopicFollower, list[tuple[bytes, bool]]]:
    heard: list[tuple[bytes, bool]] = []

    def hear(record: Record, fresh: bool) -> None:
        heard.append((record.value, fresh))

    follower = TopicFollower(journal, "topic", hear, clock or SystemClock())
    follower.start()
    return follower, heard


def is_caught_up(follower: TopicFollower) -> bool:
    try:
        follower.check()
    except NotCaughtUp:
        return False
    return True


def test_an_empty_poll_is_no_proof_of_the_end(journal: SlowJournal) -> None:
    for key in ("a", "b", "c", "d", "e"):
        journal.append("topic", Outgoing(key.encode(), key=key))
    follower, heard = follow(journal)
    try:
        eventually(lambda: is_caught_up(follower), what="the follower to catch up")
        assert sorted(heard) == [(key, False) for key in (b"a", b"b", b"c", b"d", b"e")]
        journal.append("topic", Outgoing(b"f", key="f"))
        eventually(lambda: heard[-1] == (b"f", True), what="the fresh record")
    finally:
        follower.stop(120)


def test_an_empty_topic_is_caught_up_at_once(journal: SlowJournal) -> None:
    follower, heard = follow(journal)
    try:
        eventually(lambda: is_caught_up(follower), what="the follower to catch up")
    finally:
        follower.stop(120)
    assert heard == []


def test_records_that_retention_took_are_not_waited_for(journal: SlowJournal) -> None:
    for key in ("a", "b", "c"):
        journal.append("topic", Outgoing(key.encode(), key=key))
    for number in range(3):
        journal.truncate("topic", journal.bounds("topic", number).next, number)
    follower, heard = follow(journal)
    try:
        eventually(lambda: is_caught_up(follower), what="the follower to catch up")
    finally:
        follower.stop(120)
    assert heard == []


class AwayJournal(JournalDouble):
    """Is away for the first three questions."""

    asked = 0

    def partitions(self, topic: str) -> int:
        self.asked += 1
        if self.asked <= 3:
            raise JournalUnavailable("nobody answers")
        return self._journal.partitions(topic)


def test_a_journal_that_is_away_is_logged_once_and_when_it_is_back(
    journal: SlowJournal, caplog: pytest.LogCaptureFixture
) -> None:
    clock, away = ManualClock(), AwayJournal(journal)
    journal.append("topic", Outgoing(b"a"))
    follower = TopicFollower(away, "topic", lambda *_: None, clock)
    with caplog.at_level(logging.INFO):
        follower.start()
        try:
            for asked in range(1, 4):
                eventually(lambda asked=asked: away.asked == asked, what="the next question")
                clock.until_waited_on()
                clock.advance(1)
            eventually(lambda: is_caught_up(follower), what="the follower to catch up")
        finally:
            follower.stop(120)
    assert caplog.messages == [
        "the topic topic can't be followed now: nobody answers",
        "the topic topic is followed again, after 3 s",
    ]


class ChangedReader(ReaderDouble):
    """Polls in a log to which something happened since the last poll."""

    def __init__(self, reader: Reader, changes: list[Callable[[], None]]) -> None:
        super().__init__(reader)
        self._changes = changes

    def poll(self, timeout: float) -> Sequence[Record]:
        if self._changes:
            self._changes.pop(0)()
        return self._reader.poll(timeout)


class ChangedJournal(JournalDouble):
    def __init__(self, partitions: int = 1) -> None:
        self.log, self._partitions = MemoryLog(), partitions
        super().__init__(MemoryJournal(self.log))
        self.changes: list[Callable[[], None]] = []
        self.make_topic()

    def make_topic(self) -> None:
        self.create_topics([TopicSpec("topic", partitions=self._partitions)])

    def reader(self, *arguments: Any, **options: Any) -> Any:
        return ChangedReader(self._journal.reader(*arguments, **options), self.changes)


def nothing() -> None:
    """Leave the log as it is."""


def test_r2_what_retention_took_of_a_partition_is_passed_over_and_nothing_repeated() -> None:
    journal = ChangedJournal(partitions=2)
    keys = {journal.partition_of("topic", key): key for key in "abcdefgh"}

    def retention_passes() -> None:
        for value in (b"gone", b"left"):
            journal.append("topic", Outgoing(value, key=keys[1]))
        journal.truncate("topic", 2, 1)

    journal.changes = [nothing, retention_passes]
    for number in (0, 1):
        journal.append("topic", Outgoing(b"%d" % number, key=keys[number]))
    follower, heard = follow(journal)
    try:
        eventually(lambda: (b"left", True) in heard, what="what is left")
    finally:
        follower.stop(120)
    assert sorted(value for value, _ in heard) == [b"0", b"1", b"left"]


def test_r24_a_topic_that_is_made_anew_is_read_from_its_beginning() -> None:
    journal, clock = ChangedJournal(), ManualClock()
    journal.changes = [nothing, lambda: journal.log.remove_topic("topic")]
    journal.append("topic", Outgoing(b"old"))
    follower, heard = follow(journal, clock)
    try:
        clock.until_waited_on()
        journal.make_topic()
        journal.append("topic", Outgoing(b"new"))
        clock.advance(1)
        eventually(lambda: (b"new", True) in heard, what="the first of the new topic")
    finally:
        follower.stop(120)
