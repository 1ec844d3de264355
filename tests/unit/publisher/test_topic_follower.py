"""A follower has caught up when every partition was read to its end, and not before."""

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from packhorse.clock import SystemClock
from packhorse.messaging.api import JournalUnavailable, Outgoing, Reader, Record, TopicSpec
from packhorse.messaging.memory import MemoryJournal, MemoryLog
from packhorse_services.publisher.queues.topic_follower import NotCaughtUp, TopicFollower
from tests.harness.clock import ManualClock
from tests.harness.publishing import JournalDouble
from tests.harness.waiting import eventually


class SlowReader:
    """Like Kafka's at first: it polls in vain, and then returns one record a poll."""

    def __init__(self, reader: Reader, polls: list[int]) -> None:
        self._reader, self._polls = reader, polls

    def poll(self, timeout: float) -> Sequence[Record]:
        self._polls.append(1)
        return () if len(self._polls) % 3 else self._reader.poll(timeout, max_records=1)

    def __enter__(self) -> "SlowReader":
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)


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


def follow(journal: SlowJournal) -> tuple[TopicFollower, list[tuple[bytes, bool]]]:
    heard: list[tuple[bytes, bool]] = []
    follower = TopicFollower(
        journal, "topic", lambda record, fresh: heard.append((record.value, fresh)), SystemClock()
    )
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
