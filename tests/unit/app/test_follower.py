"""A follower whose journal is away, was cut at its end, or is not known; and its positions."""

import logging
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packhorse import AnotherLog, Follower
from packhorse.app import follower as module
from packhorse.app.log_position import InvalidLogPosition, LogPosition, PartitionPosition
from packhorse.messaging.api import (
    Bounds,
    Journal,
    JournalUnavailable,
    OffsetOutOfRange,
    Outgoing,
    TopicMissing,
    TopicSpec,
)
from packhorse.messaging.memory import MemoryJournal, MemoryLog
from packhorse.runtime.configuration import InvalidConfiguration
from tests.harness.clock import ManualClock
from tests.harness.publishing import JournalDouble

TOPIC = "events"


class PassingClock(ManualClock):
    """Lets nobody wait."""

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.advance(seconds)
        return event.is_set()


class AwayJournal(JournalDouble):
    """Fails as often as it is told to."""

    failures = 0
    error: Exception = JournalUnavailable("nobody answers")

    def reader(self, *arguments: Any, **options: Any) -> Any:
        if self.failures:
            self.failures -= 1
            raise self.error
        return self._journal.reader(*arguments, **options)

    def close(self, timeout: float = 10.0) -> None:
        """Stay, for the next iteration."""


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> AwayJournal:
    journal = AwayJournal(MemoryJournal(MemoryLog()))
    journal.create_topics([TopicSpec(TOPIC)])

    def opened(url: str, *, client_name: str) -> Journal:
        return journal

    monkeypatch.setattr(module, "open_journal", opened)
    return journal


def follower(after: str | None = None) -> Follower:
    return Follower(TOPIC, journal_url="memory://double", after=after, clock=PassingClock())


def append(journal: AwayJournal, *values: bytes) -> None:
    for value in values:
        journal.append(TOPIC, Outgoing(value))


@pytest.mark.parametrize(
    "error", [JournalUnavailable("nobody answers"), OffsetOutOfRange(TOPIC, 0, 0, Bounds(0, 1))]
)
def test_a_journal_that_is_away_is_waited_for(
    journal: AwayJournal, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    append(journal, b"a")
    journal.failures, journal.error = 3, error
    with caplog.at_level(logging.INFO):
        assert next(iter(follower()))[0].value == b"a"
    first, last = (one.getMessage() for one in caplog.records if one.name.endswith("reading"))
    assert first.startswith("events can't be followed now: ")
    assert str(error) in first
    assert last.startswith("events is followed again")


def test_r24_a_log_that_was_cut_at_its_end_is_another_one(journal: AwayJournal) -> None:
    append(journal, b"a", b"b")
    reading = iter(follower())
    kept = [next(reading)[1], next(reading)[1]][-1]
    partition = journal._journal._log.topics[TOPIC].partitions[0]
    del partition.records[1:]
    with pytest.raises(AnotherLog, match="ends at 0, before the offset 1"):
        next(iter(follower(kept)))
    append(journal, b"B", b"c")
    with pytest.raises(AnotherLog, match="another record at 1") as other:
        next(iter(follower(kept)))
    assert next(iter(follower(other.value.position)))[0].value == b"a"


def test_it_ends_when_it_is_stopped(journal: AwayJournal) -> None:
    append(journal, b"a", b"b")
    with follower() as one:
        for _ in one:
            one.stop()
    assert [record.value for record, _ in one] == []


def test_a_topic_that_is_not_there_is_no_reason_to_wait(journal: AwayJournal) -> None:
    with pytest.raises(TopicMissing):
        next(iter(Follower("another", journal_url="memory://double")))


def test_what_is_no_position_is_refused() -> None:
    for text in ("", "17", "p17-s0-e0", "0" * 16, "0" * 16 + ":x", 7):
        with pytest.raises(InvalidLogPosition):
            follower(text)  # type: ignore[arg-type]


def test_a_journal_that_nothing_names_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.delenv("PACKHORSE_JOURNAL_URL", raising=False)
    with pytest.raises(InvalidConfiguration, match="no journal is known: give journal_url="):
        Follower(TOPIC, data=tmp_path)
    monkeypatch.setenv("PACKHORSE_JOURNAL_URL", "memory://named")
    assert Follower(TOPIC, data=tmp_path).position is None


PLACES = st.builds(
    PartitionPosition,
    st.integers(0, 2**63 - 1),
    st.one_of(st.just(""), st.text("0123456789abcdef", min_size=16, max_size=16)),
)


@given(st.lists(PLACES, min_size=1, max_size=20))
def test_a_position_is_a_text(places: list[PartitionPosition]) -> None:
    position = LogPosition("0123456789abcdef", tuple(places))
    assert LogPosition.parse(str(position)) == position
