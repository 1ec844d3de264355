"""A snapshot concerns all subscriptions at once.

None goes on while it is loaded, and all follow it.
"""

import threading
from contextlib import ExitStack
from functools import partial

import pytest

from packhorse.wire.messages import DesiredState, Status, SubscriptionState
from packhorse_services.subscriber import assembly
from packhorse_services.subscriber.assembly import SubscriberProgram
from packhorse_services.subscriber.lease import Connections
from packhorse_services.subscriber.snapshots.joining import SnapshotTurns
from tests.harness.feed import Feed, page
from tests.harness.snapshots import snapshot_of
from tests.harness.subscriber import assert_is_the_fold, content_of, rows_of
from tests.harness.waiting import eventually
from tests.integration.subscriber.running import (
    gap,
    hash_of,
    imported,
    running,
    session_that_waits,
    subscription,
)
from tests.integration.subscriber.snapshots.histories import (
    BOTH,
    complete_on_both,
    everywhere,
    occupied,
    write,
)


def test_a_new_subscription_takes_the_other_one_back_and_both_go_on(
    feed: Feed, database_url: str, complete_url: str
) -> None:
    offset = write(feed, 10)
    with complete_on_both(feed, complete_url) as other:
        everywhere(other, offset)
    snapshot_of(complete_url, feed, BOTH)
    last = write(feed, 10)
    with running(feed, database_url, start="earliest") as first:
        imported(first, last)
    with running(feed, database_url, start="snapshot", publisher_agents=BOTH) as subscriber:
        everywhere(subscriber, last)
        last = write(feed, 3)
        everywhere(subscriber, last)
        assert subscription(subscriber, "other").started_offset == offset
        assert subscription(subscriber).started_offset == -1
        eventually(lambda: subscription(subscriber).settled_offset == last, what="all is reported")
    with complete_on_both(feed, complete_url) as other:
        everywhere(other, last)
    assert hash_of(database_url) == hash_of(complete_url)
    assert_is_the_fold(database_url, feed)
    reported = {status.offset for status in feed.statuses() if status.subscriber == "sub"}
    main = [r.offset for r in feed.records() if r.headers["publisher-agent"] == b"main"]
    assert set(main) <= reported


def shows_loading(subscriber: SubscriberProgram, agent: str) -> bool:
    """Return whether it says so; a load that was not let in for a while is tried again."""
    state = subscription(subscriber, agent)
    text = "loads the snapshot at offset"
    return state.state is SubscriptionState.LOADING and text in state.last_error


def announced(feed: Feed) -> set[SubscriptionState]:
    """Return the states that the subscriber has announced of its subscriptions."""
    own = [message for message in feed.announcements() if message.subscriber == "sub"]
    return {state.state for message in own for state in message.states}


def test_subscriptions_wait_while_a_snapshot_is_loaded(
    feed: Feed, database_url: str, complete_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembly, "Connections", partial(Connections, lock_ms=120_000))
    offset = write(feed, 10)
    with complete_on_both(feed, complete_url) as other:
        everywhere(other, offset)
    with running(feed, database_url) as first:
        imported(first, offset)
    before = content_of(database_url)
    assert set(before) == {"/main", *(f"/main/n{number}" for number in range(7))}
    snapshot_of(complete_url, feed, BOTH)
    load = ExitStack()
    load.enter_context(occupied(database_url, "/other/n3"))
    with load, running(feed, database_url, start="snapshot", publisher_agents=BOTH) as subscriber:
        eventually(lambda: session_that_waits(database_url) is not None, what="a load")
        last = feed.add(page("/main/new"))
        for agent in BOTH:
            eventually(partial(shows_loading, subscriber, agent))
        eventually(lambda: SubscriptionState.LOADING in announced(feed), what="it is announced")
        assert content_of(database_url) == before
        load.close()
        everywhere(subscriber, last)
    assert {"/main/new", "/other/n3"} <= set(content_of(database_url))


def test_a_subscription_that_is_not_followed_any_more_is_forgotten(
    feed: Feed, database_url: str, complete_url: str
) -> None:
    offset = write(feed, 5)
    with complete_on_both(feed, complete_url) as other:
        everywhere(other, offset)
    with running(feed, database_url, publisher_agents=("old",)) as first:
        imported(first, feed.add(page("/old"), agent="old"), "old")
    snapshot_of(complete_url, feed, BOTH)
    with running(feed, database_url, start="snapshot", publisher_agents=BOTH) as subscriber:
        everywhere(subscriber, offset)
    agents = rows_of(
        database_url, "SELECT publisher_agent FROM bookkeeping.position ORDER BY publisher_agent"
    )
    assert agents == [("main",), ("other",)]
    assert "/old" not in content_of(database_url)


def test_no_snapshot_is_loaded_while_a_subscription_is_paused(
    feed: Feed, database_url: str, complete_url: str
) -> None:
    offset = write(feed, 5)
    with complete_on_both(feed, complete_url) as other:
        everywhere(other, offset)
    with running(feed, database_url) as first:
        imported(first, offset)
        feed.control("sub", DesiredState.PAUSE)
        eventually(lambda: subscription(first).state is SubscriptionState.PAUSED)
    snapshot_of(complete_url, feed, BOTH)
    with running(feed, database_url, start="snapshot", publisher_agents=BOTH) as subscriber:
        gap(subscriber, "once the subscription of main runs again", "other")
        feed.control("sub", DesiredState.RUN)
        everywhere(subscriber, offset)


def test_one_that_waits_takes_what_the_golden_one_must_have_once_that_is_there(
    feed: Feed, database_url: str, complete_url: str
) -> None:
    first = feed.add(page("/a"))
    options = {"start": "snapshot", "wait_for": "golden", "subscriber": "late"}
    golden = running(feed, complete_url, subscriber="golden", max_retries=0)
    with running(feed, database_url, **options) as late:
        gap(late, "--subscriber golden")
        with golden as subscriber:
            imported(subscriber, first)
            snapshot_of(complete_url, feed)
            ahead = {"offset": first + 1, "package_id": "", "subscriber": "golden"}
            bad = feed.bad()
            eventually(lambda: Status.REMOVED_FAILED in {s.status for s in feed.statuses()})
            snapshot_of(complete_url, feed, **ahead)
            imported(late, bad)
            imported(late, feed.add(page("/b")))
    assert set(content_of(database_url)) == {"/a", "/b"}


def test_turns_are_one_loads_or_many_steps() -> None:
    turns = SnapshotTurns()
    entered, go_on = threading.Event(), threading.Event()

    def load() -> None:
        with turns.alone() as mine:
            assert mine
            entered.set()
            go_on.wait(120)

    with turns.step() as first, turns.step() as second:
        assert first
        assert second
        loader = threading.Thread(target=load)
        loader.start()
        eventually(turns.is_loading)
        with turns.step() as late, turns.alone() as other:
            assert (late, other) == (False, False)
        assert not entered.is_set()
    assert entered.wait(120)
    with turns.step() as late, turns.alone() as other:
        assert (late, other) == (False, False)
    assert turns.is_loading()
    go_on.set()
    loader.join(120)
    with turns.step() as after:
        assert after
