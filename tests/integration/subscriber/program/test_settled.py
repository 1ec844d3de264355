"""What a subscription reports about its statuses.

Whose offsets, up to where all are sent, where it began.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest

from packhorse.messaging.api import Appended, NotAppended, Outgoing
from packhorse.wire.messages import DesiredState, Status, SubscriberState, SubscriptionState
from packhorse_services.subscriber.announce import statuses
from packhorse_services.subscriber.assembly import SubscriberProgram
from tests.harness.feed import TOPICS, Feed, page
from tests.harness.subscriber import Worker, rows_of
from tests.harness.waiting import eventually
from tests.integration.subscriber.running import create_anew, imported, running, subscription


class MuteStatuses:
    """A journal that takes no statuses until it is allowed to."""

    def __init__(self, journal: Any) -> None:
        self._journal, self.mute = journal, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def append(self, topic: str, record: Outgoing) -> Future[Appended]:
        if topic == TOPICS.status and self.mute:
            refused: Future[Appended] = Future()
            refused.set_exception(NotAppended("no statuses now"))
            return refused
        appended: Future[Appended] = self._journal.append(topic, record)
        return appended


def announced(feed: Feed, settled: int) -> None:
    """Wait until the newest announcement says that statuses are sent up to an offset."""
    eventually(
        lambda: any(a.states[0].settled_offset >= settled for a in feed.announcements()[-1:]),
        f"{settled} is announced as settled",
    )


def test_r9_a_status_names_the_journal_whose_offset_it_means(feed: Feed, worker: Worker) -> None:
    bad, good = feed.bad(), feed.add(page("/a"))
    worker.step_until_failed(1)
    worker.clear(bad)
    worker.run()
    worker.send_statuses()
    identity = feed.journal.identity(TOPICS.package)
    reported = [(status.offset, status.status, status.journal_id) for status in feed.statuses()]
    assert reported == [(bad, Status.REMOVED, identity), (good, Status.IMPORTED, identity)]


def test_an_announcement_says_that_all_statuses_up_to_its_offset_are_sent(
    feed: Feed, database_url: str
) -> None:
    for editable in (True, False):
        last = feed.add(page("/a"))
        with running(feed, database_url, editable=editable, announce_s=3600.0):
            announced(feed, last)
        assert feed.announcements()[-1].editable is editable
    for reported in feed.announcements():
        assert reported.states[0].settled_offset <= reported.states[0].offset


def test_an_import_is_announced_together_with_its_status(feed: Feed, database_url: str) -> None:
    with running(feed, database_url, announce_s=3600.0) as subscriber:
        for number in range(10):
            last = feed.add(page(f"/n{number}"))
            imported(subscriber, last)
            announced(feed, last)
    unconfirmed = [
        reported.states[0]
        for reported in feed.announcements()
        if reported.states[0].settled_offset < reported.states[0].offset
    ]
    assert len(unconfirmed) < 5, "each import takes a second announcement"


def test_settled_waits_until_the_journal_has_taken_the_statuses(
    feed: Feed, database_url: str
) -> None:
    journal = MuteStatuses(feed.journal)
    with running(feed, database_url, journal) as subscriber:
        last = feed.add(page("/a"))
        imported(subscriber, last)
        eventually(
            lambda: [each.states[0].offset for each in feed.announcements()[-1:]] == [last],
            "announced",
        )
        assert feed.announcements()[-1].states[0].settled_offset == -1
        journal.mute = False
        announced(feed, feed.add(page("/b")))
    assert [status.offset for status in feed.statuses()] == [0, 1]


def test_r13_a_subscription_says_where_it_began_also_after_a_restart(
    feed: Feed, database_url: str
) -> None:
    for number in range(5):
        feed.add(page(f"/n{number}"))
    feed.journal.truncate(TOPICS.package, 3)
    for _ in range(2):
        with running(feed, database_url, publisher_agents=("main",), start="oldest") as subscriber:
            imported(subscriber, 4)
            assert subscription(subscriber).started_offset == 2
    with running(feed, database_url, publisher_agents=("late",), start="latest") as subscriber:
        imported(subscriber, 4, "late")
        assert subscription(subscriber, "late").started_offset == 4
    assert rows_of(
        database_url, "SELECT started_offset FROM bookkeeping.position ORDER BY publisher_agent"
    ) == [(4,), (2,)]


def test_a_subscription_that_began_with_the_first_package_says_minus_one(
    feed: Feed, database_url: str
) -> None:
    with running(feed, database_url) as subscriber:
        imported(subscriber, feed.add(page("/a")))
        assert subscription(subscriber).started_offset == -1


@contextmanager
def a_slow_round(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Hold the first round that begins in the block once it has read the positions."""
    read, go_on = threading.Event(), threading.Event()
    unsent = statuses._unsent

    def slowly(*arguments: Any) -> Any:
        found = unsent(*arguments)
        if not read.is_set():
            read.set()
            assert go_on.wait(120)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(statuses, "_unsent", slowly)
        try:
            assert read.wait(120), "no round began"
            yield go_on
        finally:
            go_on.set()


def stop(feed: Feed, subscriber: SubscriberProgram) -> None:
    feed.control("sub", DesiredState.STOP)
    eventually(
        lambda: subscription(subscriber).state is SubscriptionState.STOPPED,
        "the subscription stopped",
    )


def announced_subscriptions(feed: Feed) -> list[SubscriberState]:
    return [reported.states[0] for reported in feed.announcements()]


def test_r9_after_a_reset_nothing_is_settled_until_it_is_sent_anew(
    feed: Feed, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statuses, "_INTERVAL_S", 1.0)
    feed.add(page("/a"))
    feed.bad()
    last = feed.add(page("/b"))
    with running(feed, database_url, max_retries=0, lease_s=3600.0, announce_s=0.1) as subscriber:
        imported(subscriber, last)
        announced(feed, last)
        stop(feed, subscriber)
        with a_slow_round(monkeypatch) as go_on:
            sent = len(feed.statuses())
            feed.reset("sub", -1)
            eventually(lambda: subscription(subscriber).offset == -1, "the subscription is reset")
            feed.control("sub", DesiredState.RUN)
            imported(subscriber, last)
            eventually(lambda: announced_subscriptions(feed)[-1].epoch == 2, "announced again")
            eventually(lambda: announced_subscriptions(feed)[-1].offset == last, "and at its end")
            reported = [
                state.settled_offset for state in announced_subscriptions(feed) if state.epoch == 2
            ]
            assert (set(reported), len(feed.statuses())) == ({-1}, sent)
            go_on.set()
            announced(feed, last)
    assert [status.offset for status in feed.statuses()] == [0, 1, 2] * 2


def test_r24_what_was_settled_in_another_log_says_nothing_of_this_one(
    feed: Feed, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statuses, "_INTERVAL_S", 1.0)
    for number in range(7):
        last = feed.add(page(f"/n{number}"))
    with running(feed, database_url, max_retries=0, lease_s=3600.0, announce_s=0.1) as subscriber:
        imported(subscriber, last)
        announced(feed, last)
        create_anew(feed)
        feed.add(page("/new"))
        feed.bad()
        end = feed.add(page("/new2"))
        identity = feed.journal.identity(TOPICS.package)
        stop(feed, subscriber)
        with a_slow_round(monkeypatch) as go_on:
            feed.reset("sub", -1)
            eventually(
                lambda: subscription(subscriber).journal_id == identity, "the subscription is reset"
            )
            feed.control("sub", DesiredState.RUN)
            imported(subscriber, end)
            eventually(
                lambda: (
                    (
                        announced_subscriptions(feed)[-1].journal_id,
                        announced_subscriptions(feed)[-1].offset,
                    )
                    == (identity, end)
                ),
                "announced in the new log",
            )
            new = [state for state in announced_subscriptions(feed) if state.journal_id == identity]
            assert {state.settled_offset for state in new} == {-1}
            go_on.set()
            announced(feed, end)
    reported = [status.offset for status in feed.statuses() if status.journal_id == identity]
    assert reported == [0, 1, 2]
