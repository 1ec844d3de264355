"""The assembled subscriber: subscriptions in threads, announcements, standby, outages."""

import threading
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from packhorse.messaging.api import JournalUnavailable, Reader, Record
from packhorse.wire.messages import AWAITED, Action, Status, SubscriptionState
from packhorse_services.subscriber.announce import announcer
from packhorse_services.subscriber.importing import importer
from packhorse_services.subscriber.importing.subscription import Subscription
from packhorse_services.subscriber.lease import Connections
from tests.harness.borrowing import borrowed
from tests.harness.feed import TOPICS, Feed, page
from tests.harness.postgres import end_sessions
from tests.harness.subscriber import assert_is_the_fold, content_of, position_of
from tests.harness.waiting import eventually
from tests.integration.subscriber.running import create_anew, imported, running, subscription


def test_everything_that_is_appended_is_imported_reported_and_announced(
    feed: Feed, database_url: str
) -> None:
    with running(feed, database_url) as subscriber:
        for number in range(300):
            last = feed.add(page(f"/n{number % 50}", number))
        imported(subscriber, last)
        eventually(lambda: len(feed.statuses()) == 300, "all statuses are sent")
        eventually(
            lambda: [each.states[0].offset for each in feed.announcements()[-1:]] == [last],
            "the end is announced",
        )
    assert_is_the_fold(database_url, feed)
    announced = feed.announcements()[-1]
    assert (announced.subscriber, announced.editable, announced.max_retries) == ("sub", True, -1)
    assert {status.status for status in feed.statuses()} == {Status.IMPORTED}


def test_announcements_after_batches_are_coalesced(
    feed: Feed, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcer, "_LEAST_GAP_S", 600.0)  # however long the imports take
    with running(feed, database_url, announce_s=3600.0, group_packages=1) as subscriber:
        for number in range(100):
            last = feed.add(page(f"/n{number}"))
        imported(subscriber, last)
        eventually(lambda: len(feed.announcements()) > 0, "an announcement came")
    assert len(feed.announcements()) < 5


def test_r16_nothing_is_announced_while_the_position_can_not_be_read(
    feed: Feed, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(feed, database_url) as subscriber:
        imported(subscriber, feed.add(page("/a")))
    before, refused, connect = len(feed.announcements()), [0], Connections.subscription

    def without_a_slot(connections: Connections) -> psycopg.Connection:
        if refused[0] < 3:
            refused[0] += 1
            raise psycopg.OperationalError("too many connections")
        return connect(connections)

    monkeypatch.setattr(Connections, "subscription", without_a_slot)
    with running(feed, database_url, announce_s=0.05) as subscriber:
        imported(subscriber, feed.add(page("/b")))
    assert {one.states[0].offset for one in feed.announcements()[before:]} <= {0, 1}


def test_a_package_that_is_awaited_is_announced_between_the_others(
    feed: Feed, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcer, "_LEAST_GAP_S", 600.0)
    with running(feed, database_url, announce_s=3600.0) as subscriber:
        imported(subscriber, feed.add(page("/a")))
        eventually(lambda: len(feed.announcements()) > 0, "the first is announced")
        for number in range(3):
            other = feed.add(page(f"/m{number}"))  # which asks for an announcement, and has none
            eventually(
                lambda other=other: subscription(subscriber).settled_offset == other,
                "its status is sent",
            )
            message = feed.message(Action.ADD, [f"/n{number}"], (), [page(f"/n{number}")])
            awaited = feed.append(replace(message, metadata={AWAITED: "true"}))
            eventually(
                lambda awaited=awaited: (
                    feed.announcements()[-1].states[0].settled_offset == awaited
                ),
                "all that it did is announced",
            )


class CommandsAway:
    """A journal whose command topic is away until it is `back`."""

    def __init__(self, journal: Any) -> None:
        self._journal, self.back = journal, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def bounds(self, topic: str, *arguments: Any) -> Any:
        if topic == TOPICS.command and not self.back:
            raise JournalUnavailable("away for a moment")
        return self._journal.bounds(topic, *arguments)


def test_r16_nothing_is_announced_before_the_position_is_known(
    feed: Feed, database_url: str
) -> None:
    with running(feed, database_url) as subscriber:
        imported(subscriber, feed.add(page("/a")))
    before = len(feed.announcements())
    journal = CommandsAway(feed.journal)
    with running(feed, database_url, journal, announce_s=0.05) as subscriber:
        eventually(lambda: len(feed.announcements()) > before + 2, "it announces itself")
        journal.back = True
        imported(subscriber, feed.add(page("/b")))
    assert {one.states[0].offset for one in feed.announcements()[before:]} <= {0, 1}


def test_r10_a_blocked_subscription_blocks_no_other(feed: Feed, database_url: str) -> None:
    agents = ("main", "other")
    with running(feed, database_url, publisher_agents=agents) as subscriber:
        bad = feed.bad()
        for number in range(20):
            last = feed.add(page(f"/other/{number}"), agent="other")
        feed.add(page("/never"))
        imported(subscriber, last, "other")
        eventually(
            lambda: subscription(subscriber).state is SubscriptionState.BLOCKED, "main is blocked"
        )
        feed.clear("sub", bad)
        imported(subscriber, last + 1)
    assert len(content_of(database_url)) == 22


def test_r11_a_standby_waits_and_takes_over(feed: Feed, database_url: str) -> None:
    with running(feed, database_url) as first:
        imported(first, feed.add(page("/a")))
        with running(feed, database_url) as second:
            eventually(
                lambda: second.lease.holder() == first.identity.instance, "the second looked"
            )
            assert subscription(second).state is SubscriptionState.WAITING_FOR_LEASE
            imported(first, feed.add(page("/b")))
            for component in reversed(first.components):
                component.stop(60)
            imported(second, feed.add(page("/c")))
            assert second.lease.epoch() == 2
            eventually(lambda: len({one.offset for one in feed.statuses()}) == 3, "all reports")
    assert_is_the_fold(database_url, feed)
    assert {status.offset for status in feed.statuses()} == {0, 1, 2}


def test_r24_a_topic_created_anew_stops_a_running_subscription(
    feed: Feed, database_url: str
) -> None:
    with running(feed, database_url) as subscriber:
        imported(subscriber, feed.add(page("/a")))
        create_anew(feed)
        for number in range(5):
            feed.add(page(f"/new/{number}"))
        eventually(
            lambda: subscription(subscriber).state is SubscriptionState.JOURNAL_MISMATCH,
            "the subscription has stopped",
        )
        assert "created anew" in subscription(subscriber).last_error
    assert set(content_of(database_url)) == {"/a"}


def test_r13_a_gap_is_a_state_that_is_announced(feed: Feed, database_url: str) -> None:
    with running(feed, database_url) as subscriber:
        imported(subscriber, feed.add(page("/a")))
    for number in range(4):
        feed.add(page(f"/n{number}"))
    feed.journal.truncate(TOPICS.package, 3)
    with running(feed, database_url) as subscriber:
        eventually(
            lambda: subscription(subscriber).state is SubscriptionState.GAP, "the gap is seen"
        )
        eventually(
            lambda: (
                [each.states[0].state for each in feed.announcements()[-1:]]
                == [SubscriptionState.GAP]
            ),
            "and announced",
        )
    assert set(content_of(database_url)) == {"/a"}


def test_a_lease_that_had_lapsed_is_followed_by_an_announcement(
    feed: Feed, database_url: str
) -> None:
    """What was to be announced meanwhile is not left for the next interval."""
    with running(feed, database_url, lease_s=3.0, announce_s=3600.0) as subscriber:
        imported(subscriber, feed.add(page("/a")))
        eventually(lambda: [one.states[0].offset for one in feed.announcements()[-1:]] == [0])
        before = len(feed.announcements())
        with subscriber.lease._changed:
            subscriber.lease._valid_until = 0.0  # until it is renewed
        eventually(lambda: len(feed.announcements()) > before, "it is announced again")
    assert_is_the_fold(database_url, feed)


def test_sessions_that_end_again_and_again_lose_and_repeat_nothing(
    feed: Feed, database_url: str
) -> None:
    feed.producer = "author"
    with running(feed, database_url, max_retries=0) as subscriber:
        for round_ in range(10):
            for number in range(30):
                last = feed.add(page(f"/n{number}", round_))
            with borrowed(database_url) as connection:
                end_sessions(connection)
        imported(subscriber, last)
        eventually(
            lambda: {status.offset for status in feed.statuses()} == set(range(300)),
            "all statuses are sent",
        )
    assert_is_the_fold(database_url, feed)
    assert {status.status for status in feed.statuses()} == {Status.IMPORTED}


class Flickering:
    """A journal whose readers fail every other poll."""

    def __init__(self, journal: Any) -> None:
        self._journal = journal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def reader(self, *arguments: Any, **options: Any) -> Reader:
        reader = self._journal.reader(*arguments, **options)
        poll, polls = reader.poll, iter(range(10**6))

        def flickering_poll(*arguments: Any, **options: Any) -> list[Record]:
            if next(polls) % 2:
                raise JournalUnavailable("away for a moment")
            found: list[Record] = poll(*arguments, **options)
            return found

        reader.poll = flickering_poll
        return reader  # type: ignore[no-any-return]


def test_a_journal_that_flickers_is_read_to_its_end(feed: Feed, database_url: str) -> None:
    for number in range(50):
        last = feed.add(page(f"/n{number}"))
    journal = Flickering(feed.journal)
    options = {"prefetch_packages": 20, "editable": False}
    with running(feed, database_url, journal, **options) as subscriber:
        imported(subscriber, last)
    assert_is_the_fold(database_url, feed)


def test_a_subscriber_stops_at_once_while_it_waits_for_its_back_off(
    feed: Feed, database_url: str
) -> None:
    feed.bad()
    slow = {"backoff_first_s": 900.0, "backoff_longest_s": 900.0}
    with running(feed, database_url, **slow) as subscriber:
        eventually(lambda: subscription(subscriber).retries > 0, "the package has failed")
    assert subscription(subscriber).state is SubscriptionState.WAITING_FOR_LEASE


def test_a_released_lease_is_taken_without_waiting(feed: Feed, database_url: str) -> None:
    with running(feed, database_url, lease_s=3600.0) as subscriber:
        imported(subscriber, feed.add(page("/a")))
    with running(feed, database_url, lease_s=3600.0) as subscriber:
        imported(subscriber, feed.add(page("/b")))
    assert position_of(database_url).offset == 1


def test_a_stop_waits_for_what_is_imported_however_long_it_takes(
    feed: Feed, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package whose only attempt is cut off would be given up by the next worker."""
    begun, apply = threading.Event(), importer.apply

    def apply_when_it_stops(*given: Any, **options: Any) -> None:
        begun.set()
        eventually(main._joining.turns.is_loading, "no step may begin any more")
        apply(*given, **options)

    monkeypatch.setattr(importer, "apply", apply_when_it_stops)
    with running(feed, database_url, publisher_agents="main,other", max_retries=0) as subscriber:
        main, other = (one for one in subscriber.components if isinstance(one, Subscription))
        feed.add(page("/a"))
        assert begun.wait(120)
        other.stop(0)
        main.stop(0)
        assert set(content_of(database_url)) == {"/a"}
