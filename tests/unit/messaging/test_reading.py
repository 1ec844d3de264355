"""Reading to an end: not before it, not for ever, and not past a call to stop."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from packhorse.messaging.api import (
    Bounds,
    JournalUnavailable,
    OffsetOutOfRange,
    Outgoing,
    Reader,
    Record,
    TopicSpec,
)
from packhorse.messaging.memory import MemoryJournal, MemoryLog
from packhorse.messaging.reading import (
    LogCut,
    Polled,
    follow,
    keep_following,
    read_range,
    read_to,
)
from packhorse_services.subscriber.commands import reset
from tests.harness.clock import ManualClock
from tests.harness.publishing import JournalDouble

TOPIC = "packages"


class Ended(Exception):
    """What a test's own call raises to end a reading."""


class SlowReader:
    """Gives one record at each third poll; with `stuck` none at all."""

    def __init__(self, reader: Reader, *, stuck: bool, cut: bool) -> None:
        self._reader, self._stuck, self._cut = reader, stuck, cut
        self.polls = 0

    def poll(self, timeout: float, **limits: int) -> Sequence[Record]:
        self.polls += 1
        if self._cut:
            raise OffsetOutOfRange(TOPIC, 0, 0, Bounds(5, 9))
        return () if self._stuck or self.polls % 3 else self._reader.poll(timeout, max_records=1)

    def __enter__(self) -> "SlowReader":
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)


class SlowJournal(JournalDouble):
    stuck = cut = False

    def reader(self, *arguments: Any, **options: Any) -> Any:
        reader = self._journal.reader(*arguments, **options)
        return SlowReader(reader, stuck=self.stuck, cut=self.cut)


@pytest.fixture
def quick() -> MemoryJournal:
    journal = MemoryJournal(MemoryLog())
    journal.create_topics([TopicSpec(TOPIC)])
    for number in range(4):
        journal.append(TOPIC, Outgoing(b"%d" % number))
    return journal


@pytest.fixture
def journal(quick: MemoryJournal) -> SlowJournal:
    return SlowJournal(quick)


def test_an_empty_poll_is_no_end(journal: SlowJournal) -> None:
    assert [record.offset for record in read_range(journal, TOPIC, 1, 4)] == [1, 2, 3]


def test_nothing_beyond_the_end_is_given(journal: SlowJournal) -> None:
    assert [record.offset for record in read_range(journal, TOPIC, 0, 2)] == [0, 1]
    assert list(read_range(journal, TOPIC, 2, 2)) == []


def test_a_batch_that_goes_beyond_the_end_is_cut_and_comes_without_values(
    quick: MemoryJournal,
) -> None:
    found = [(record.offset, record.value) for record in read_range(quick, TOPIC, 1, 3)]
    assert found == [(1, b""), (2, b"")]


def test_a_reader_that_gives_nothing_is_given_up(journal: SlowJournal) -> None:
    journal.stuck = True
    with journal.reader(TOPIC, 0, partition=0) as reader:
        with pytest.raises(JournalUnavailable, match="end was not reached"):
            list(read_to(reader, 4, patience_s=0.0))
        assert reader.polls == 1


def test_every_record_renews_the_patience(journal: SlowJournal) -> None:
    with journal.reader(TOPIC, 0, partition=0) as reader:
        assert len(list(read_to(reader, 4, patience_s=60.0))) == 4


def test_r2_a_log_that_is_cut_is_no_gap_of_the_reader(journal: SlowJournal) -> None:
    journal.cut = True
    with pytest.raises(LogCut):
        list(read_range(journal, TOPIC, 0, 4))


def ending(calls: int) -> Any:
    left = iter(range(calls))

    def call() -> None:
        if next(left, None) is None:
            raise Ended

    return call


def test_a_reading_without_progress_can_be_ended(journal: SlowJournal) -> None:
    journal.stuck = True
    with pytest.raises(Ended):
        list(read_range(journal, TOPIC, 0, 4, meanwhile=ending(5)))


def test_a_reset_that_reads_without_progress_can_be_ended(journal: SlowJournal) -> None:
    journal.stuck = True
    with pytest.raises(Ended):
        reset.target(
            journal, TOPIC, reset.ResetPoint("main", "log", 3), remember=False, check=ending(5)
        )


def test_following_goes_on_until_the_log_is_another_one(journal: SlowJournal) -> None:
    clock, requested = ManualClock(), iter([False, True])
    seen = []
    with journal.reader(TOPIC, 0, partition=0) as reader:
        for step in follow(reader, threading.Event(), clock, is_over=lambda: next(requested)):
            seen += [(step.start, step.end)] if step.records else []
            if reader.polls in (6, 9):
                clock.advance(16)
    assert seen == [(0, 1), (1, 2), (2, 3)]
    assert list(requested) == []


def test_following_ends_when_it_is_asked_to(journal: SlowJournal) -> None:
    stopping = threading.Event()
    with journal.reader(TOPIC, 0, partition=0) as reader:
        for _ in follow(reader, stopping, ManualClock(), is_over=lambda: False):
            stopping.set()
        assert reader.polls == 1


class WokenReader(Reader):
    woken = 0

    def wake(self) -> None:
        self.woken += 1

    def close(self) -> None:
        pass


def test_a_reader_is_woken_while_it_is_polled_and_no_longer() -> None:
    polled, reader = Polled(), WokenReader()
    with polled.polling(reader):
        polled.wake()
    polled.wake()
    assert reader.woken == 1


class CountingClock(ManualClock):
    """Counts the pauses, and lets nobody wait."""

    pauses = 0

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.pauses += 1
        return event.is_set()


def test_an_error_is_followed_by_a_pause_and_another_try() -> None:
    clock, stopping = CountingClock(), threading.Event()

    def steps() -> Iterator[None]:
        if clock.pauses < 2:
            raise JournalUnavailable("away")
        yield stopping.set()

    keep_following(stopping, clock, "a log", steps)
    assert clock.pauses == 2
