"""Reading ahead: in order, bounded in packages and bytes, honest about the reader's end."""

import threading
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from packhorse.blobs.open import open_blobs
from packhorse.messaging.api import (
    Journal,
    Outgoing,
    Position,
    Reader,
    Record,
    TopicMissing,
    TopicSpec,
)
from packhorse.messaging.memory import MemoryJournal, MemoryLog
from packhorse.packages.body import unpack
from packhorse.wire.messages import Action
from packhorse.wire.package_codec import AGENT_HEADER, PACKAGE_ID_HEADER
from packhorse_services.subscriber.journal.arrivals import Arrival
from packhorse_services.subscriber.journal.prefetch import (
    DECODING,
    Decoding,
    Prefetch,
    PrefetchLimits,
)
from tests.harness.digests import digested
from tests.harness.feed import Feed, page
from tests.harness.waiting import eventually

TOPIC = "packages"


@pytest.fixture
def journal() -> MemoryJournal:
    journal = MemoryJournal(MemoryLog())
    journal.create_topics([TopicSpec(TOPIC)])
    return journal


@pytest.fixture
def feed(journal: MemoryJournal, tmp_path: Path) -> Feed:
    return Feed(journal, open_blobs(str(tmp_path)))


def append(journal: Journal, size: int = 1, agent: str = "main") -> None:
    headers = {AGENT_HEADER: agent.encode(), PACKAGE_ID_HEADER: uuid.uuid4().hex.encode()}
    value = b"x" * size
    journal.append(TOPIC, Outgoing(value, digested(headers, value))).result(120)


class Ahead:
    """A running prefetch and what it has signalled."""

    def __init__(self, journal: Journal, limits: PrefetchLimits, topic: str = TOPIC) -> None:
        self.arrived = threading.Event()
        reader = journal.reader(topic, 0, partition=0)
        self.prefetch = Prefetch(reader, "main", limits, self.arrived.set)
        self.prefetch.start()

    def take(self, count: int, packages: int = 100, size: int = 10**9) -> list[Arrival]:
        """Return arrivals until there are so many."""
        taken: list[Arrival] = []

        def enough() -> bool:
            taken.extend(self.prefetch.take(packages, size))
            return len(taken) >= count

        eventually(enough, interval=0.005)
        return taken


@pytest.fixture
def ahead(journal: MemoryJournal) -> Iterator[Ahead]:
    made = Ahead(journal, PrefetchLimits(packages=8, bytes=10_000))
    yield made
    made.prefetch.close()


def test_arrivals_come_in_order_and_wake_the_subscription(journal: Journal, ahead: Ahead) -> None:
    for _ in range(30):
        append(journal)
    assert ahead.arrived.wait(120)
    assert [arrival.offset for arrival in ahead.take(30)] == list(range(30))


def test_r10_no_more_packages_are_held_than_allowed(journal: Journal) -> None:
    for _ in range(30):
        append(journal)
    ahead = Ahead(journal, PrefetchLimits(packages=8, bytes=10_000))
    eventually(lambda: len(ahead.prefetch._buffer) == 8)
    assert [arrival.offset for arrival in ahead.prefetch.take(4, 10**9)] == [0, 1, 2, 3]
    eventually(lambda: len(ahead.prefetch._buffer) > 4)
    assert [arrival.offset for arrival in ahead.prefetch.take(100, 10**9)] == list(range(4, 12))
    ahead.prefetch.close()


def test_what_is_read_at_once_is_half_of_what_may_be_held(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A poll for each package that was taken would be an exchange with a journal far away."""
    for _ in range(30):
        append(journal)
    reader, asked = type(journal.reader(TOPIC, 0)), []
    poll = reader.poll

    def counted(self: Reader, *arguments: float, **limits: int) -> Sequence[Record]:
        asked.append(limits["max_records"])
        return poll(self, *arguments, **limits)

    monkeypatch.setattr(reader, "poll", counted)
    ahead = Ahead(journal, PrefetchLimits(packages=8))
    for _ in range(30):
        ahead.take(1, packages=1)
    ahead.prefetch.close()
    assert min(asked) >= 4


def test_no_more_bytes_are_held_than_allowed_except_for_one_large_package(
    journal: Journal, ahead: Ahead
) -> None:
    for size in (50_000, 9_000, 9_000):
        append(journal, size)
    eventually(lambda: len(ahead.prefetch._buffer) == 1)
    assert [arrival.size for arrival in ahead.take(3)] == [50_000, 9_000, 9_000]


def test_other_agents_packages_in_a_row_are_one_arrival(journal: Journal) -> None:
    for agent in ["main", *["other"] * 50, "main", "other"]:
        append(journal, agent=agent)
    ahead = Ahead(journal, PrefetchLimits())
    eventually(lambda: len(ahead.prefetch._buffer) == 4)
    taken = ahead.prefetch.take(100, 10**9)
    assert [(a.offset, a.record is None) for a in taken] == [
        *((0, False), (50, True), (51, False), (52, True))
    ]
    ahead.prefetch.close()


def test_the_readers_end_is_reported_after_what_it_has_read(journal: MemoryJournal) -> None:
    append(journal)
    ahead = Ahead(journal, PrefetchLimits())
    eventually(lambda: len(ahead.prefetch._buffer) == 1 and ahead.arrived.is_set())
    ahead.arrived.clear()
    journal._log.remove_topic(TOPIC)
    assert ahead.arrived.wait(120)
    assert len(ahead.prefetch.take(10, 100)) == 1
    with pytest.raises(TopicMissing):
        ahead.prefetch.take(10, 100)


def test_r10_nothing_is_decoded_ahead_before_the_subscription_asks_for_it(feed: Feed) -> None:
    feed.add(page("/a"))
    ahead = Ahead(feed.journal, PrefetchLimits(), feed.topics.package)
    assert [one.message for one in ahead.take(1)] == [None]
    ahead.prefetch.decode()
    feed.add(page("/b"))
    (second,) = ahead.take(1)
    assert second.message is not None
    assert second.message.body is not None
    assert [node.path for node in unpack(second.message, feed.blobs)] == ["/b"]
    ahead.prefetch.close()


def test_r10_nothing_is_decoded_ahead_while_a_package_is_tried_alone(feed: Feed) -> None:
    ahead = Ahead(feed.journal, PrefetchLimits(), feed.topics.package)
    ahead.prefetch.decode()
    with DECODING.paused():
        feed.add(page("/a"))
        assert [one.message for one in ahead.take(1)] == [None]
    feed.add(page("/b"))
    (after,) = ahead.take(1)
    assert after.message is not None
    ahead.prefetch.close()


def test_r14_what_cannot_be_decoded_ahead_arrives_as_it_is(feed: Feed) -> None:
    ahead = Ahead(feed.journal, PrefetchLimits(), feed.topics.package)
    ahead.prefetch.decode()
    good = feed.message(Action.ADD, ["/a"], (), [page("/a")])
    assert good.body is not None
    feed.append(replace(good, body=replace(good.body, sha256=b"0" * 32)))
    feed.raw(b"no package", {AGENT_HEADER: b"main"})
    feed.append(good)
    first, second, third = ahead.take(3)
    assert (first.message, second.message) == (None, None)
    assert third.message == good
    ahead.prefetch.close()


def test_r30_what_is_decoded_ahead_counts_among_the_bytes(feed: Feed) -> None:
    ahead = Ahead(feed.journal, PrefetchLimits(bytes=2_000), feed.topics.package)
    ahead.prefetch.decode()
    large = page("/a", text="x" * 100_000)  # a few hundred bytes in the record
    for _ in range(3):
        feed.add(large)
    eventually(lambda: len(ahead.prefetch._buffer) > 0)
    taken = ahead.take(3)
    assert taken[0].kept > 100_000
    assert ahead.prefetch._bytes == 0
    ahead.prefetch.close()


class Scripted(Reader):
    """Gives what it is told to at each poll, nothing behind that, and notes what is asked of it."""

    def __init__(self, *batches: Sequence[Record]) -> None:
        self._batches = list(batches)
        self._awake = threading.Event()
        self.asked: list[tuple[int, int]] = []
        self.is_closed = False

    def poll(
        self, timeout: float, *, max_records: int = 500, max_bytes: int = 0
    ) -> Sequence[Record]:
        self.asked.append((max_records, max_bytes))
        if self._batches:
            return self._batches.pop(0)
        self._awake.wait()
        return ()

    def wake(self) -> None:
        self._awake.set()

    def close(self) -> None:
        self.is_closed = True

    def seek(self, position: Position, partition: int = 0) -> None:
        raise NotImplementedError

    def position(self, partition: int = 0) -> int:
        raise NotImplementedError


def test_r30_what_is_held_is_no_room_for_more() -> None:
    records = [Record(TOPIC, 0, offset, 0, None, {}, b"x" * 1_000) for offset in range(8)]
    reader = Scripted(records[:3], records[3:])
    prefetch = Prefetch(reader, "main", PrefetchLimits(8, 100_000), lambda: None)
    prefetch.start()
    eventually(lambda: len(prefetch._buffer) == 8)
    prefetch.close(120)
    assert reader.asked == [(8, 100_000), (5, 100_000 - 3 * 1_512)]


@pytest.mark.parametrize("full", [False, True])
def test_who_closes_it_waits_for_the_thread_that_closes_the_reader(full: bool) -> None:
    reader = Scripted([Record(TOPIC, 0, 0, 0, None, {}, b"")]) if full else Scripted()
    prefetch = Prefetch(reader, "main", PrefetchLimits(packages=1), lambda: None)
    prefetch.start()
    eventually(lambda: reader.asked and len(prefetch._buffer) == full)
    prefetch.close(120)
    assert reader.is_closed


def test_r30_no_more_is_decoded_ahead_than_there_is_room_for(feed: Feed) -> None:
    for name in ("/a", "/b", "/c", "/d"):
        feed.add(page(name, text="x" * 100_000))
    first, *others = feed.records()
    reader = Scripted([first], others)
    prefetch = Prefetch(reader, "main", PrefetchLimits(bytes=250_000), lambda: None)
    prefetch.decode()
    prefetch.start()
    eventually(lambda: len(prefetch._buffer) == 4)
    assert [one.message is not None for one in prefetch.take(4, 10**9)] == [True] * 3 + [False]
    prefetch.close()


def test_r10_a_try_alone_begins_when_what_is_being_decoded_is_done() -> None:
    decoding, happened = Decoding(), list[str]()

    def try_alone() -> None:
        with decoding.paused():
            happened.append("alone")

    with decoding.paused():
        assert not decoding.begin()
    assert decoding.begin()
    alone = threading.Thread(target=try_alone, daemon=True)
    alone.start()
    eventually(lambda: decoding._alone == 1)
    happened.append("decoded")
    decoding.end()
    alone.join(120)
    assert happened == ["decoded", "alone"]


def test_r30_what_is_taken_counts_with_what_is_decoded(feed: Feed) -> None:
    ahead = Ahead(feed.journal, PrefetchLimits(), feed.topics.package)
    ahead.prefetch.decode()
    for name in ("/a", "/b", "/c"):
        feed.add(page(name, text="x" * 100_000))
    eventually(lambda: len(ahead.prefetch._buffer) == 3)
    assert len(ahead.prefetch.take(100, 2_000)) == 1
    ahead.prefetch.close()
