"""A subscriber that waits for another: golden first, then the one that waits (ADR 0014)."""

import uuid
from contextlib import AbstractContextManager
from typing import Any

import pytest

from packhorse.wire.messages import Action, Status, StatusMessage, SubscriptionState
from packhorse_services.subscriber.assembly import SubscriberProgram
from tests.harness.feed import TOPICS, Feed, page
from tests.harness.postgres import Databases
from tests.harness.subscriber import (
    assert_is_the_fold,
    content_of,
    position_of,
    rows_of,
)
from tests.harness.waiting import eventually
from tests.integration.subscriber.conftest import empty
from tests.integration.subscriber.running import imported, running, subscription


@pytest.fixture(scope="module")
def second_database(databases: Databases) -> str:
    return databases.new("golden")


@pytest.fixture
def golden_url(second_database: str) -> str:
    """The database of the golden subscriber, empty."""
    empty(second_database)
    return second_database


BOTH_JOURNALS = pytest.mark.parametrize("journal_url", ["memory", "sql"], indirect=True)
"""What is read of a journal is held for each by test_staging_follower and test_follower."""


@pytest.fixture
def journal_url(request: pytest.FixtureRequest) -> str:
    """The journal in memory, or the one in Postgres."""
    if getattr(request, "param", "memory") == "memory":
        return f"memory://{uuid.uuid4()}"
    databases: Databases = request.getfixturevalue("databases")
    return databases.new("journal")


def golden(feed: Feed, url: str, **options: Any) -> AbstractContextManager[SubscriberProgram]:
    return running(feed, url, **{"subscriber": "golden", **options})


def waiting(feed: Feed, url: str, **options: Any) -> AbstractContextManager[SubscriberProgram]:
    return running(feed, url, **{"subscriber": "late", "wait_for": "golden", **options})


def waits(subscriber: SubscriberProgram, because: str) -> None:
    def reported() -> bool:
        state = subscription(subscriber)
        return (
            state.state is SubscriptionState.WAITING_FOR_SUBSCRIBER and because in state.last_error
        )

    eventually(reported, f"it waits: {because}")


WAITING = (SubscriptionState.WAITING_FOR_SUBSCRIBER, 0)


def announced(feed: Feed) -> list[tuple[SubscriptionState, int]]:
    """Return what the newest announcement says of the subscription."""
    return [
        (state.state, state.retries)
        for announcement in feed.announcements()[-1:]
        for state in announcement.states
    ]


def reported_by(feed: Feed, name: str) -> list[StatusMessage]:
    return [status for status in feed.statuses() if status.subscriber == name]


@BOTH_JOURNALS
def test_nothing_is_imported_before_the_golden_one_has_it(
    feed: Feed, database_url: str, golden_url: str
) -> None:
    last = [feed.add(page(f"/n{number}")) for number in range(50)][-1]
    with waiting(feed, database_url) as late:
        waits(late, "golden, which has not announced itself")
        eventually(lambda: announced(feed) == [WAITING], "the newest announcement says so")
        assert content_of(database_url) == {}
        with golden(feed, golden_url):
            imported(late, last)
            assert position_of(golden_url).offset == last
            last = feed.add(page("/live"))
            imported(late, last)
        feed.add(page("/after"))
        waits(late, f"waits for golden to import offset {last + 1}")
        assert rows_of(database_url, "SELECT FROM bookkeeping.attempt WHERE attempts > 1") == []
    assert_is_the_fold(database_url, feed)
    assert len(content_of(database_url)) == 51
    eventually(lambda: len(reported_by(feed, "late")) == 51, "all is reported")
    first = {status.offset: status.decided_ms for status in reported_by(feed, "golden")}
    for status in reported_by(feed, "late"):
        assert first[status.offset] <= status.decided_ms


@pytest.mark.parametrize("editable", [True, False])
def test_what_the_golden_one_gave_up_is_skipped_and_reported(
    feed: Feed, database_url: str, golden_url: str, editable: bool
) -> None:
    good = [feed.add(page(f"/n{number}")) for number in range(3)]
    bad = [feed.bad(), feed.bad()]
    last = feed.add(page("/after"))
    with (
        golden(feed, golden_url, max_retries=0),
        waiting(feed, database_url, editable=editable) as late,
    ):
        imported(late, last)
        eventually(
            lambda: {s.offset for s in reported_by(feed, "late")} >= set(bad),
            "skipped ones are reported",
        )
    skipped = [status for status in reported_by(feed, "late") if status.status is Status.SKIPPED]
    assert [status.offset for status in skipped] == bad
    assert skipped[0].reason.startswith("golden reported REMOVED_FAILED: ")
    assert skipped[0].journal_id == feed.journal.identity(TOPICS.package)
    others = [status for status in reported_by(feed, "late") if status.status is not Status.SKIPPED]
    assert [status.offset for status in others] == ([*good, last] if editable else [])
    assert_is_the_fold(database_url, feed, removed=bad)


def test_what_was_cleared_at_the_golden_one_is_skipped(
    feed: Feed, database_url: str, golden_url: str
) -> None:
    first = feed.add(page("/a"))
    with golden(feed, golden_url) as gold, waiting(feed, database_url) as late:
        imported(late, first)
        blocked = [feed.bad(), feed.add(page("/cleared"))]
        eventually(
            lambda: subscription(gold).state is SubscriptionState.BLOCKED, "golden is blocked"
        )
        waits(late, f"offset {blocked[0]}, which is BLOCKED: ")
        feed.clear("golden", blocked[-1])
        imported(late, feed.add(page("/after")))
    assert set(content_of(database_url)) == {"/a", "/after"}
    assert_is_the_fold(database_url, feed, removed=blocked)


def test_r19_a_clear_ends_the_wait_and_so_does_the_end(feed: Feed, database_url: str) -> None:
    first, second = feed.add(page("/a")), feed.add(page("/b"))
    with waiting(feed, database_url) as late:
        waits(late, "golden")
        feed.clear("late", first)
        imported(late, first)
        waits(late, "golden")
        assert subscription(late).offset < second
    assert subscription(late).state is not SubscriptionState.WAITING_FOR_SUBSCRIBER
    assert content_of(database_url) == {}
    assert [(s.offset, s.status) for s in feed.statuses()] == [(first, Status.REMOVED)]


def test_a_golden_one_that_reports_no_imports_is_named(
    feed: Feed, database_url: str, golden_url: str
) -> None:
    last = feed.add(page("/a"))
    with golden(feed, golden_url, editable=False) as gold, waiting(feed, database_url) as late:
        imported(gold, last)
        waits(late, "golden, which reports no import: make it editable")
    with golden(feed, golden_url), waiting(feed, database_url) as late:
        imported(late, last)


def test_what_the_golden_one_passed_over_as_a_repeat_is_no_obstacle(
    feed: Feed, database_url: str, golden_url: str
) -> None:
    feed.producer = "author"
    message = feed.message(Action.ADD, ["/a"], (), [page("/a")])
    feed.append(message)
    repeat = feed.append(message)
    feed.send(Action.TEST, "/a")
    last = feed.add(page("/b"))
    with golden(feed, golden_url), waiting(feed, database_url) as late:
        imported(late, last)
    assert repeat not in {status.offset for status in feed.statuses()}
    assert_is_the_fold(database_url, feed)


def test_a_golden_one_that_began_later_is_named(
    feed: Feed, database_url: str, golden_url: str
) -> None:
    first = feed.add(page("/a"))
    with golden(feed, golden_url, start="latest") as gold, waiting(feed, database_url) as late:
        imported(gold, first)
        waits(late, f"golden began behind offset {first}")
        feed.clear("late", first)
        imported(late, feed.add(page("/b")))
    assert set(content_of(database_url)) == {"/b"}


@BOTH_JOURNALS
def test_decisions_survive_restarts_of_both(feed: Feed, database_url: str, golden_url: str) -> None:
    bad: list[int] = []
    for round_ in range(3):
        for number in range(6):
            feed.add(page(f"/n{number}", round_))
        bad.append(feed.bad())
        last = feed.add(page("/last", round_))
        with golden(feed, golden_url, max_retries=0) as gold:
            imported(gold, last)
        with waiting(feed, database_url, editable=False) as late:
            imported(late, last)
    assert_is_the_fold(database_url, feed, removed=bad)
    assert_is_the_fold(golden_url, feed, removed=bad)


def test_a_subscription_that_waits_holds_up_no_other(
    feed: Feed, database_url: str, golden_url: str
) -> None:
    both = {"publisher_agents": ("main", "other")}
    with golden(feed, golden_url, publisher_agents=("other",)):
        stays, last = feed.add(page("/stays")), feed.add(page("/goes"), agent="other")
        with waiting(feed, database_url, **both) as late:
            imported(late, last, "other")
            waits(late, "does not follow main")
            assert subscription(late).offset < stays
    assert set(content_of(database_url)) == {"/goes"}
