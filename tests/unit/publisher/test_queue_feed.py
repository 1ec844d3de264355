"""R15, R17: the cache is filled from the journal, and only with what is missing."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from packhorse.messaging.api import Journal, Outgoing, Record, TopicSpec
from packhorse.messaging.memory import MemoryJournal, MemoryLog
from packhorse.wire.codec import encode_discovery
from packhorse.wire.messages import (
    Action,
    DiscoveryMessage,
    PackageEntry,
    PackageMessage,
    SubscriberState,
)
from packhorse.wire.package_codec import encode_package
from packhorse_services.publisher.queues.cache import columns
from packhorse_services.publisher.queues.cache.filters import ALL, EntryFilter
from packhorse_services.publisher.queues.cache.journal_pages import PageRange
from packhorse_services.publisher.queues.cache.queue_cache import QueueCache
from packhorse_services.publisher.queues.cache.queue_feed import QueueFeed, QueueLoading
from packhorse_services.publisher.queues.cache.ranges import Ranges
from packhorse_services.publisher.queues.error_counts import ErrorCounts
from packhorse_services.publisher.queues.queue import Queues
from packhorse_services.publisher.queues.subscribers import Subscribers
from tests.harness.clock import ManualClock
from tests.harness.publishing import JournalDouble
from tests.harness.waiting import eventually

TOPIC = "package"
WAIT_S = 120.0  # longer than any pause of a busy machine


class WatchedJournal(JournalDouble):
    """Counts the ranges that are read, and can hold the readers back."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self.read_from: list[Any] = []
        self.may_read = threading.Event()
        self.may_read.set()

    def reader(self, topic: str, start: Any, **options: Any) -> Any:
        assert options["values"] is False, "bodies are not needed"
        assert self.may_read.wait(WAIT_S)
        self.read_from.append(start)
        return self._journal.reader(topic, start, **options)


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


@pytest.fixture
def journal(log: MemoryLog) -> WatchedJournal:
    journal = MemoryJournal(log)
    journal.create_topics([TopicSpec(TOPIC)])
    return WatchedJournal(journal)


def append(journal: Any, count: int, agent: str = "main") -> None:
    for number in range(count):
        entry = PackageEntry(f"id-{number}", agent, Action.ADD, ("/a" * 100,))
        encoded = encode_package(PackageMessage(entry))
        journal.append(TOPIC, Outgoing(encoded.value, encoded.headers)).result()


@contextmanager
def running(journal: Any, clock: ManualClock, *, max_bytes: int = 2**29) -> Iterator[QueueFeed]:
    cache = QueueCache("main", max_bytes=max_bytes)
    feed = QueueFeed(journal, TOPIC, cache, clock=clock)
    feed.start()
    try:
        yield feed
    finally:
        journal.may_read.set()
        feed.stop(WAIT_S)


def test_r17_only_the_missing_range_is_fetched_once_for_all(journal: WatchedJournal) -> None:
    append(journal, 10)

    async def everybody(feed: QueueFeed, offset: int) -> None:
        assert all(await asyncio.gather(*(feed.need(offset, WAIT_S) for _ in range(50))))

    with running(journal, ManualClock()) as feed:
        asyncio.run(everybody(feed, 5))
        assert (feed.cache.low, feed.cache.extent(5).length) == (6, 4)
        asyncio.run(everybody(feed, -1))
        assert feed.cache.extent(-1).length == 10
        asyncio.run(everybody(feed, 3))
        assert journal.read_from == [10, 6, 0]
        append(journal, 3)
        eventually(lambda: feed.cache.extent(-1).length == 13)


def test_r17_a_fetch_that_takes_too_long_goes_on(journal: WatchedJournal) -> None:
    append(journal, 10)
    with running(journal, ManualClock()) as feed:
        asyncio.run(feed.need(9, WAIT_S))
        journal.may_read.clear()
        assert not asyncio.run(feed.need(-1, 0.05))
        journal.may_read.set()
        assert asyncio.run(feed.need(-1, WAIT_S))
        assert journal.read_from == [10, 0]


def test_r17_memory_is_bounded_and_pages_are_exact_below_it(
    journal: WatchedJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "_ENTRIES", 400)
    append(journal, 1_000)
    with running(journal, ManualClock(), max_bytes=200_000) as feed:
        assert not asyncio.run(feed.need(-1, WAIT_S))
        assert (feed.full, feed.want(-1)) == (True, None)
        assert feed.cache.size <= 200_000
        assert 0 < feed.cache.low < 900
        assert asyncio.run(feed.need(900, WAIT_S))
        assert feed.cache.extent(900).length == 99
        extent = feed.cache.extent(-1)
        assert extent.at_least == 1_000 - feed.cache.low
        assert (extent.at_most, extent.length) == (1_000, None)
        low, size = feed.cache.low, feed.cache.size
        for start in (0, 123, low - 30):
            page = asyncio.run(feed.page(PageRange(start, -1, 50), WAIT_S))
            assert [entry.offset for entry in page.entries] == list(range(start, start + 50))
            assert page.behind == start + 49
        assert (feed.cache.low, feed.cache.size) == (low, size)
        append(journal, 1_000)
        eventually(lambda: feed.cache.next == 2_000)
        assert feed.cache.size <= 200_000
        assert feed.cache.extent(-1).at_most == 2_000


def test_r17_callers_share_a_page_from_the_journal_within_their_deadline(
    journal: WatchedJournal,
) -> None:
    append(journal, 100)

    async def everybody(feed: QueueFeed) -> None:
        reads = (feed.page(PageRange(3, -1, 5), WAIT_S) for _ in range(20))
        asked = [asyncio.ensure_future(read) for read in reads]
        await asyncio.sleep(0)  # each one asks, and waits
        assert not any(read.done() for read in asked)
        journal.may_read.set()
        assert {page.behind for page in await asyncio.gather(*asked)} == {7}

    with running(journal, ManualClock()) as feed:
        asyncio.run(feed.need(99, WAIT_S))
        journal.may_read.clear()
        with pytest.raises(QueueLoading):
            asyncio.run(feed.page(PageRange(3, -1, 5), 0.05))
        asyncio.run(everybody(feed))
        assert journal.read_from == [100, 3], "they share the read that is under way"


def test_r17_a_page_that_nobody_waits_for_any_more_is_not_read(journal: WatchedJournal) -> None:
    append(journal, 100)

    async def give_up(feed: QueueFeed, start: int) -> None:
        with pytest.raises(QueueLoading):
            await feed.page(PageRange(start, -1, 5), 0)

    async def scenario(feed: QueueFeed) -> None:
        await asyncio.gather(*(give_up(feed, start) for start in range(20)))
        journal.may_read.set()
        assert (await feed.page(PageRange(50, -1, 5), WAIT_S)).behind == 54

    with running(journal, ManualClock()) as feed:
        asyncio.run(feed.need(99, WAIT_S))
        journal.may_read.clear()
        asyncio.run(scenario(feed))
        assert len(journal.read_from) <= 4, "the tail, what had begun, and what was waited for"


def test_r15_a_filtered_page_from_the_journal_goes_on_in_the_cache(
    journal: WatchedJournal,
) -> None:
    append(journal, 40)
    nothing = EntryFilter(action=Action.DELETE)
    with running(journal, ManualClock()) as feed:
        asyncio.run(feed.need(29, WAIT_S))
        assert feed.cache.low == 30
        page = asyncio.run(feed.page(PageRange(0, -1, 50, nothing), WAIT_S))
        assert (list(page.entries), page.behind) == ([], None)
        page = asyncio.run(feed.page(PageRange(20, -1, 50, ALL), WAIT_S))
        assert [entry.offset for entry in page.entries] == list(range(20, 40))


def test_r17_a_page_reads_other_agents_packages_many_at_a_time(
    journal: WatchedJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(journal, 2_000, "other")
    append(journal, 1)
    read, batches = Ranges.batches, list[int]()

    def counted(*asked: Any) -> Iterator[Sequence[Record]]:
        for records in read(*asked):
            batches.append(len(records))
            yield records

    with running(journal, ManualClock()) as feed:
        asyncio.run(feed.need(2_000, WAIT_S))
        monkeypatch.setattr(Ranges, "batches", counted)
        first = asyncio.run(feed.first(0, WAIT_S))
    assert first is not None
    assert (first.offset, sum(batches)) == (2_000, 2_001)
    assert len(batches) <= 5


def test_r15_what_the_log_has_forgotten_is_shown_no_more(journal: WatchedJournal) -> None:
    append(journal, 10)
    clock = ManualClock()
    with running(journal, clock) as feed:
        asyncio.run(feed.need(-1, WAIT_S))
        journal.truncate(TOPIC, 4)

        def is_forgotten() -> bool:
            clock.advance(16)  # again and again: the tail may count from what it reads now
            return feed.cache.extent(-1).length == 7

        clock.advance(16)
        append(journal, 1)  # it wakes the tail
        eventually(is_forgotten)
        assert feed.cache.extent(7).length == 3


def test_r17_a_tail_that_retention_has_overtaken_goes_on(journal: WatchedJournal) -> None:
    clock = ManualClock()
    journal.may_read.clear()
    with running(journal, clock) as feed:
        eventually(lambda: feed.identity != "")
        append(journal, 10)
        journal.truncate(TOPIC, 5)
        journal.may_read.set()

        def is_followed_again() -> bool:
            clock.advance(2)
            return feed.cache.next == 10

        eventually(is_followed_again)
        assert feed.cache.extent(-1).length == 5


def test_r24_another_topic_of_that_name_is_another_log(
    journal: WatchedJournal, log: MemoryLog
) -> None:
    append(journal, 10)
    clock = ManualClock()
    with running(journal, clock) as feed:
        asyncio.run(feed.need(-1, WAIT_S))
        log.remove_topic(TOPIC)
        journal.create_topics([TopicSpec(TOPIC)])
        append(journal, 2)

        def follows_the_new_one() -> bool:
            clock.advance(2)
            return bool(feed.cache.extent(-1).length == 2 or feed.cache.next == 2)

        eventually(follows_the_new_one)
        asyncio.run(feed.need(-1, WAIT_S))
        assert feed.cache.extent(-1).length == 2


def test_r24_a_queue_that_is_asked_for_while_the_cache_is_reset_is_of_neither_log(
    journal: WatchedJournal, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, answers = ManualClock(), list[Any]()
    subscribers = Subscribers(clock, "main")
    encoded = encode_discovery(DiscoveryMessage("sub", (SubscriberState("main", 9),)))
    subscribers.note(Record("discovery", 0, 0, 0, None, encoded.headers, encoded.value), True)
    append(journal, 10)
    with running(journal, clock) as feed:
        asyncio.run(feed.need(9, WAIT_S))
        queues, reset = Queues(feed, subscribers, ErrorCounts(), clock), feed.cache.reset

        def asked(next_offset: int) -> None:
            reset(next_offset)
            answers.extend(asyncio.run(answer_of(queues)))

        async def answer_of(queues: Queues) -> list[Any]:
            return await asyncio.gather(queues.queue("sub"), return_exceptions=True)

        monkeypatch.setattr(feed.cache, "reset", asked)
        log.remove_topic(TOPIC)
        journal.create_topics([TopicSpec(TOPIC)])

        def has_answered() -> bool:
            clock.advance(2)
            return bool(answers)

        eventually(has_answered)
    [answer] = answers
    assert isinstance(answer, QueueLoading), answer
