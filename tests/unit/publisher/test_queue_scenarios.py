"""Scenarios of the peer's own tests (O, C, Q), on our queues; ids are those of the reference."""

import asyncio
import threading
from collections.abc import Iterator, Sequence

import pytest

from packhorse.messaging.api import Outgoing, Record, TopicSpec
from packhorse.messaging.memory import MemoryJournal, MemoryLog
from packhorse.wire.messages import Action, PackageEntry, PackageMessage
from packhorse.wire.package_codec import encode_package
from packhorse_services.publisher.queues.cache.filters import ALL
from packhorse_services.publisher.queues.cache.queue_cache import QueueCache
from packhorse_services.publisher.queues.cache.queue_feed import QueueFeed, QueueLoading
from packhorse_services.publisher.queues.cache.ranges import RangeFetch, Ranges
from tests.harness.clock import ManualClock
from tests.unit.publisher.package_records import package_record

OFFSETS = (100, 105, 113, 155, 194)


def add(agent: str = "main", action: Action = Action.ADD) -> PackageEntry:
    return PackageEntry("id", agent, action, ("/test",))


@pytest.fixture
def cache() -> QueueCache:
    cache = QueueCache("main")
    cache.extend([package_record(offset, add()) for offset in OFFSETS])
    return cache


def offsets(cache: QueueCache, after: int, limit: int, skip_to: int = -1) -> list[int]:
    view = cache.view(after, limit, skip_to=skip_to)
    assert view is not None
    return [entry.offset for entry in view.page.entries]


def test_an_empty_queue_has_no_head() -> None:
    view = QueueCache("main").view(-1, 10)
    assert view is not None
    assert (view.head, view.page.entries) == (None, ())


@pytest.mark.parametrize(
    ("after", "limit", "skip_to", "expected"),
    [
        pytest.param(-1, 1, -1, [100], id="o3"),
        pytest.param(-1, 2, 101, [105, 113], id="o4"),
        pytest.param(-1, 100, 101, [105, 113, 155, 194], id="o5"),
        pytest.param(-1, 2, 195, [], id="o6"),
        pytest.param(-1, 200, 101, [105, 113, 155, 194], id="o7"),
        pytest.param(104, 100, -1, [105, 113, 155, 194], id="o8"),
        pytest.param(102, 100, -1, [105, 113, 155, 194], id="o9"),
        pytest.param(199, 100, -1, [], id="o11"),
    ],
)
def test_pages(
    cache: QueueCache, after: int, limit: int, skip_to: int, expected: list[int]
) -> None:
    assert offsets(cache, after, limit, skip_to) == expected


def test_the_queue_is_a_live_view(cache: QueueCache) -> None:
    assert (cache.extent(-1).length, cache.newest()) == (5, 194)
    cache.extend([package_record(200, add())])
    assert (cache.extent(-1).length, cache.newest(), cache.extent(194).length) == (6, 200, 1)


def test_only_packages_of_the_agent_count_and_no_tests() -> None:
    log = [
        ("agent3", Action.ADD),
        ("agent3", Action.DELETE),
        ("agent1", Action.ADD),
        ("agent3", Action.TEST),
        ("agent2", Action.TEST),
        ("agent3", Action.ADD),
    ]
    records = [package_record(offset, add(*one)) for offset, one in enumerate(log)]
    caches = {agent: QueueCache(agent) for agent in ("agent1", "agent2", "agent3")}
    for one in caches.values():
        one.extend(records)
    assert {agent: one.extent(-1).length for agent, one in caches.items()} == {
        "agent1": 1,
        "agent2": 0,
        "agent3": 3,
    }
    assert offsets(caches["agent3"], 0, 10) == [1, 5]


def journal_of(*entries: PackageEntry) -> MemoryJournal:
    journal = MemoryJournal(MemoryLog())
    journal.create_topics([TopicSpec("package")])
    for entry in entries:
        encoded = encode_package(PackageMessage(entry))
        journal.append("package", Outgoing(encoded.value, encoded.headers)).result()
    return journal


def test_a_range_ends_where_the_cache_begins() -> None:
    journal = journal_of(*[add()] * 11, add(action=Action.TEST), *[add()] * 13)
    cache = QueueCache("main", 20)
    RangeFetch(Ranges(journal, "package", threading.Event()), cache).fetch_above(9)
    assert (cache.low, offsets(cache, 9, 100)) == (10, [10, *range(12, 20)])


def test_r17_a_cache_that_is_trimmed_while_a_range_is_read_is_not_full() -> None:
    journal, cache = journal_of(*[add()] * 25), QueueCache("main", 20)
    cache.extend([package_record(offset, add()) for offset in range(20, 25)])

    class Trimming(Ranges):
        def batches(self, start: int, end: int, max_records: int = 5) -> Iterator[Sequence[Record]]:
            for number, records in enumerate(super().batches(start, end, 5)):
                if number == 1:
                    cache.trim(25)
                yield records

    fetch = RangeFetch(Trimming(journal, "package", threading.Event()), cache)
    fetch.fetch_above(9)
    assert (cache.low, fetch.full) == (25, False)
    fetch.fetch_above(19)
    assert (cache.low, offsets(cache, 19, 100)) == (20, [20, 21, 22, 23, 24])


def test_nothing_is_sent_to_fill_a_cache() -> None:
    journal = journal_of(add("other"), add(action=Action.TEST))
    feed = QueueFeed(journal, "package", QueueCache("main"), clock=ManualClock())
    feed.start()
    assert asyncio.run(feed.need(-1, 120))
    assert (feed.cache.extent(-1).length, journal.bounds("package").next) == (0, 2)
    feed.stop(120)
    feed.stop(120)


def test_a_cache_that_never_began_is_reported_at_once() -> None:
    feed = QueueFeed(journal_of(), "package", QueueCache("main"), clock=ManualClock())
    with pytest.raises(QueueLoading):
        asyncio.run(feed.need(-1, 0.01))
    assert feed.cache.page(0, 10, ALL) is not None
    feed.stop(1)
