"""Queues as plain lists: what Hypothesis compares a publisher's queues with, on any journal."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from packhorse.messaging import reading
from packhorse.messaging.api import Outgoing, Record, TopicSpec
from packhorse.wire.codec import encode_discovery
from packhorse.wire.messages import (
    Action,
    DiscoveryMessage,
    PackageEntry,
    PackageMessage,
    SubscriberState,
)
from packhorse.wire.package_codec import encode_package
from packhorse_services.publisher.queues.cache import columns, journal_pages, queue_feed, ranges
from packhorse_services.publisher.queues.cache.filters import ALL, EntryFilter
from packhorse_services.publisher.queues.cache.queue_cache import QueueCache
from packhorse_services.publisher.queues.cache.queue_feed import QueueFeed
from packhorse_services.publisher.queues.error_counts import ErrorCounts
from packhorse_services.publisher.queues.queue import Queues, SubscriberQueue
from packhorse_services.publisher.queues.subscribers import Subscribers
from tests.harness.clock import ManualClock
from tests.harness.journals import DEADLINE_S, JournalBackend, create_topic, fresh_name
from tests.harness.waiting import eventually
from tests.integration.queue_shown import Shown, content, flat, matches

AGENT = "main"
NAMES = ("a", "b", "c")
CACHE_BYTES = 900
"""Three or four segments of four entries: every path below and above the cache is taken."""

_paths = st.lists(st.sampled_from(["/a", "/a/b", "/ab", "/c/\U0001f40e"]), max_size=2).map(tuple)
_entries = st.builds(
    PackageEntry,
    package_id=st.one_of(
        st.builds("dstrpck-{}-{:016x}".format, st.integers(1, 10**13), st.integers(0, 2**64 - 1)),
        st.text(max_size=5),
    ),
    publisher_agent=st.sampled_from([AGENT, AGENT, AGENT, "other"]),
    action=st.sampled_from(Action),
    paths=_paths,
    deep_paths=_paths,
    user=st.sampled_from(["alice", ""]),
    body_length=st.sampled_from([0, 5_000, 2**40]),
)
FILTERS = (
    ALL,
    EntryFilter(path_prefix="/a"),
    EntryFilter(path_prefix="/"),
    EntryFilter(action=Action.DELETE),
    EntryFilter("/a/b", Action.ADD),
)
_fractions = st.floats(0, 1)


@dataclass
class Subscription:
    """What a subscriber announced."""

    offset: int
    editable: bool
    log: int
    stale: bool = False


@dataclass
class Log:
    """What is in the topic: every offset, and what queues show of it."""

    number: int = 0
    oldest: int = 0
    next: int = 0
    shown: list[Shown] = field(default_factory=list)

    def above(self, offset: int) -> list[Shown]:
        return [one for one in self.shown if one[0] > offset and one[0] >= self.oldest]


class QueueMachine(RuleBasedStateMachine):
    """Appends, announces, clears, cuts, creates anew and restarts; queues stay what lists are."""

    backend: JournalBackend
    recreates = True

    def __init__(self) -> None:
        super().__init__()
        self.patches = ExitStack()
        patch = self.patches.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(columns, "_ENTRIES", 4)
        patch.setattr(queue_feed, "_POLL_S", 0.02)
        patch.setattr(reading, "_FOLLOW_S", 0.02)
        patch.setattr(reading, "_CHECK_S", 0.0)
        patch.setattr(ranges, "_CHUNK", 7)
        patch.setattr(journal_pages, "_RECORDS", 9)
        self.journal = self.backend.open()
        self.topic, self.log = fresh_name(), Log()
        self.subscriptions: dict[str, Subscription] = {}
        self.looks = 0
        self.subscriber_clock = ManualClock()
        self._create()

    def _create(self) -> None:
        create_topic(self.journal, TopicSpec(self.topic))
        # Asked once, as who waits looks at it every few milliseconds.
        self.identity = self.journal.identity(self.topic)

    @initialize(before=st.lists(_entries, max_size=30))
    def begin(self, before: list[PackageEntry]) -> None:
        self._append(before)
        self._start()
        self._announce("a", -1, editable=False)

    def _start(self) -> None:
        self.clock = ManualClock()
        cache = QueueCache(AGENT, max_bytes=CACHE_BYTES)
        self.feed = QueueFeed(self.journal, self.topic, cache, clock=self.clock)
        subscribers = Subscribers(self.subscriber_clock, AGENT)
        self.queues = Queues(self.feed, subscribers, ErrorCounts(), self.clock)
        self.feed.start()
        self._follow()

    def teardown(self) -> None:
        if hasattr(self, "feed"):
            self.feed.stop(DEADLINE_S)
        self.journal.close()
        self.patches.close()

    @rule(entries=st.lists(_entries, min_size=1, max_size=12))
    def append(self, entries: list[PackageEntry]) -> None:
        self._append(entries)

    @rule(entries=st.lists(_entries, min_size=30, max_size=60))
    def append_more_than_the_cache_holds(self, entries: list[PackageEntry]) -> None:
        self._append(entries)

    def _append(self, entries: Sequence[PackageEntry]) -> None:
        encoded = [encode_package(PackageMessage(entry)) for entry in entries]
        futures = [
            self.journal.append(self.topic, Outgoing(one.value, one.headers)) for one in encoded
        ]
        for future, entry in zip(futures, entries, strict=True):
            offset = future.result(DEADLINE_S).offset
            self.log.next = offset + 1
            if entry.publisher_agent == AGENT and entry.action is not Action.TEST:
                self.log.shown.append((offset, *content(entry)))

    @rule()
    def append_what_cant_be_read(self) -> None:
        headers = {"publisher-agent": AGENT.encode(), "entry": b"\xff", "package-id": b"odd"}
        offset = self.journal.append(self.topic, Outgoing(b"", headers)).result(DEADLINE_S).offset
        self.log.next = offset + 1
        self.log.shown.append((offset, "odd", None, 0, "", (), ()))

    @rule(name=st.sampled_from(NAMES), part=_fractions, editable=st.booleans())
    def announce(self, name: str, part: float, editable: bool) -> None:
        self._announce(name, round(part * self.log.next) - 1, editable)

    @rule(name=st.sampled_from(NAMES), part=_fractions)
    def clear(self, name: str, part: float) -> None:
        """A subscriber that applied a clear command announces the offset behind it."""
        subscription = self.subscriptions.get(name)
        queue = (
            self.log.above(subscription.offset)
            if subscription and subscription.log == self.log.number
            else []
        )
        if queue and subscription:
            self._announce(name, queue[round(part * (len(queue) - 1))][0], subscription.editable)

    def _announce(self, name: str, offset: int, editable: bool) -> None:
        self.subscriptions[name] = Subscription(offset, editable, self.log.number)
        state = SubscriberState(AGENT, offset, journal_id=self.identity)
        encoded = encode_discovery(DiscoveryMessage(name, (state,), editable=editable))
        record = Record("discovery", 0, 0, 0, None, encoded.headers, encoded.value)
        self.queues.subscribers.note(record, True)

    @rule()
    def all_fall_silent(self) -> None:
        self.subscriber_clock.advance(31)
        for subscription in self.subscriptions.values():
            subscription.stale = True

    @rule()
    def keep_up(self) -> None:
        self._follow()
        self.queues.keep_up()

    @rule(part=_fractions)
    def retention(self, part: float) -> None:
        before = self.log.oldest + round(part * (self.log.next - self.log.oldest))
        self.journal.truncate(self.topic, before)
        self.log.oldest = max(self.log.oldest, before)

    @rule()
    def restart(self) -> None:
        self.feed.stop(DEADLINE_S)
        self._start()
        for name, subscription in list(self.subscriptions.items()):
            if subscription.log == self.log.number and not subscription.stale:
                self._announce(name, subscription.offset, subscription.editable)
            else:
                del self.subscriptions[name]

    @rule(entries=st.lists(_entries, max_size=12))
    def create_anew(self, entries: list[PackageEntry]) -> None:
        if self.recreates:
            self.backend.remove_topic(self.topic)
            self._create()
            self.log = Log(self.log.number + 1)
            self._append(entries)

    def _follow(self) -> None:
        eventually(self._has_followed, timeout=DEADLINE_S, interval=0.002, what="the tail")

    def _has_followed(self) -> bool:
        self.clock.advance(2)
        cache = self.feed.cache
        return (
            self.feed.identity == self.identity
            and cache.next >= self.log.next
            and cache.oldest == self.log.oldest
        )

    def _expected(self, subscription: Subscription) -> list[Shown]:
        return self.log.above(subscription.offset if subscription.log == self.log.number else -1)

    @invariant()
    def pages_are_parts_of_the_lists(self) -> None:
        if not self.subscriptions:
            return
        self._follow()
        self.looks += 1
        name = sorted(self.subscriptions)[self.looks % len(self.subscriptions)]
        limit, wanted = 1 + self.looks * 3 % 11, FILTERS[self.looks % len(FILTERS)]
        expected = self._expected(self.subscriptions[name])
        shown: list[Shown] = []
        for queue in self._pages(name, limit, wanted):
            assert len(queue.page.entries) <= limit
            assert [flat(one) for one in (queue.head,) if one] == expected[:1]
            _within(queue, len(expected))
            shown += map(flat, queue.page.entries)
        assert shown == [one for one in expected if matches(one, wanted)]

    def _pages(self, name: str, limit: int, wanted: EntryFilter) -> Iterator[SubscriberQueue]:
        behind: int | None = -1
        while behind is not None:
            requested = self.queues.queue(name, limit=limit, skip_to=behind + 1, wanted=wanted)
            queue = asyncio.run(requested)
            yield queue
            assert queue.page.behind is None or queue.page.behind > behind
            behind = queue.page.behind

    @invariant()
    def overviews_are_the_lists(self) -> None:
        if not hasattr(self, "feed"):
            return
        self._follow()
        overview = asyncio.run(self.queues.overview())
        assert [queue.subscriber.name for queue in overview] == sorted(self.subscriptions)
        for queue in overview:
            subscription = self.subscriptions[queue.subscriber.name]
            expected = self._expected(subscription)
            _within(queue, len(expected))
            assert queue.stale == subscription.stale
            if queue.head is not None:
                assert flat(queue.head) == expected[0]
        self._compare_backlog()
        cache = self.feed.cache
        assert cache.size <= CACHE_BYTES or len(cache._segments) == 1

    def _compare_backlog(self) -> None:
        live = {
            name: self._offset(one) for name, one in self.subscriptions.items() if not one.stale
        }
        backlog = self.queues.backlog()
        assert backlog.subscriber == min(live, key=lambda name: (live[name], name), default=None)
        waiting = self.log.above(min(live.values(), default=self.log.next))
        if backlog.exact:
            assert (backlog.packages, backlog.bytes) == (
                len(waiting),
                sum(one[3] for one in waiting),
            )
        assert backlog.packages <= len(waiting)

    def _offset(self, subscription: Subscription) -> int:
        return subscription.offset if subscription.log == self.log.number else -1


def _within(queue: SubscriberQueue, length: int) -> None:
    assert queue.extent.at_least <= length <= queue.extent.at_most
    assert (queue.length is None) == (queue.length_unknown is not None)
