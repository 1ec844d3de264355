"""Resetting a stopped subscription's offset.

What lies behind is really imported, nobody else commits.
"""

import threading
import uuid

import pytest

from packhorse.messaging.api import Journal
from packhorse.wire.messages import CommandState, DesiredState, Status, SubscriptionState
from packhorse_services.subscriber.announce import statuses
from packhorse_services.subscriber.journal.failures import Fenced
from tests.harness.commands import following, reported, reset, stopped
from tests.harness.feed import TOPICS, Feed, page
from tests.harness.postgres import Databases
from tests.harness.subscriber import (
    Worker,
    assert_is_the_fold,
    content_of,
    position_of,
    rows_of,
    tamper,
)
from tests.harness.waiting import eventually
from tests.integration.subscriber.conftest import Workers
from tests.integration.subscriber.running import create_anew, imported, running, subscription

APPLIED, REJECTED = CommandState.APPLIED, CommandState.REJECTED


@pytest.fixture(params=["memory", "sql"])
def journal_url(request: pytest.FixtureRequest, databases: Databases) -> str:
    """Each test on the journal in memory and on the one in SQL."""
    return databases.new("journal") if request.param == "sql" else f"memory://{uuid.uuid4()}"


def test_r8_after_a_reset_what_lies_behind_is_imported_again(feed: Feed, worker: Worker) -> None:
    feed.producer = "author"  # numbered, so that each would be taken for a repeat
    offsets = [feed.add(page(f"/n{number}", number)) for number in range(6)]
    with following(worker) as follower:
        worker.run()
        worker.send_statuses()
        tamper(worker.url)
        assert reset(follower, feed, -1) == (APPLIED, 0, "")
        assert position_of(worker.url).offset == -1
        worker.run()
    assert_is_the_fold(worker.url, feed)
    worker.send_statuses()
    assert [s.offset for s in feed.statuses()] == offsets * 2, "each is reported anew"
    assert worker.report.state.started_offset == -1


def test_a_reset_forward_leaves_out_what_lies_between(feed: Feed, worker: Worker) -> None:
    first = feed.add(page("/a"))
    with following(worker) as follower:
        worker.run()
        between = [feed.add(page(f"/n{number}")) for number in range(3)]
        assert reset(follower, feed, between[-1])[0] is APPLIED
        feed.add(page("/b"))
        worker.run()
    assert set(content_of(worker.url)) == {"/a", "/b"}
    started = rows_of(worker.url, "SELECT started_offset FROM bookkeeping.position")
    assert started == [(between[-1],)], "nobody may say that these were imported"
    assert first < between[0]


def test_r24_the_new_position_names_the_package_that_is_there(feed: Feed, worker: Worker) -> None:
    for number in range(3):
        feed.add(page(f"/n{number}"))
    with following(worker) as follower:
        worker.run()
        reset(follower, feed, 1)
        here = feed.records()[1].headers["package-id"].decode()
        assert (position_of(worker.url).offset, position_of(worker.url).package_id) == (1, here)
        reset(follower, feed, -1)
        assert position_of(worker.url).package_id == ""


@pytest.mark.parametrize("offset", [-2, 3, 10**15])
def test_an_offset_outside_the_log_is_refused(feed: Feed, worker: Worker, offset: int) -> None:
    for number in range(3):
        feed.add(page(f"/n{number}"))
    with following(worker) as follower:
        worker.run()
        state, _, reason = reset(follower, feed, offset)
    assert (state, position_of(worker.url).offset) == (REJECTED, 2)
    assert "0 to 2" in reason


@pytest.mark.parametrize("desired", [DesiredState.RUN, DesiredState.PAUSE])
def test_a_subscription_that_is_not_stopped_is_not_reset(
    feed: Feed, worker: Worker, desired: DesiredState
) -> None:
    feed.add(page("/a"))
    with following(worker) as follower:
        worker.run()
        feed.control("sub", desired)
        command_id = feed.reset("sub", -1)
        follower.catch_up()
    (_, (state, _, reason)) = reported(worker, feed, command_id)
    assert (state, position_of(worker.url).offset) == (REJECTED, 0)
    assert "stop it first" in reason


def test_r25_an_import_that_was_under_way_can_not_commit(feed: Feed, worker: Worker) -> None:
    feed.add(page("/a"))
    with following(worker) as follower:
        session = worker.begin()
        worker.run()
        feed.add(page("/a", 2))
        feed.control("sub", DesiredState.STOP)
        feed.reset("sub", -1)
        follower.catch_up()
        worker.control.take({})  # as if it had not heard of the stop
        with pytest.raises(Fenced):
            worker.run()
        assert session.position.epoch == 1
        assert worker.lease.epoch() == 2
        assert position_of(worker.url).offset == -1
        feed.control("sub", DesiredState.RUN)
        follower.catch_up()
        worker.end()
        worker.run()
    assert_is_the_fold(worker.url, feed)


def test_the_other_subscriptions_of_the_database_go_on(feed: Feed, database_url: str) -> None:
    agents = ("main", "other")
    with running(feed, database_url, publisher_agents=agents, lease_s=3600.0) as subscriber:
        imported(subscriber, feed.add(page("/a")))
        imported(subscriber, feed.add(page("/x"), agent="other"), "other")
        feed.control("sub", DesiredState.STOP)
        eventually(lambda: subscription(subscriber).state is SubscriptionState.STOPPED)
        feed.reset("sub", -1)
        eventually(
            lambda: subscription(subscriber).offset == -1, what="the new offset is announced"
        )
        imported(subscriber, feed.add(page("/y"), agent="other"), "other")
        assert subscription(subscriber).state is SubscriptionState.STOPPED
        tamper(database_url)
        feed.control("sub", DesiredState.RUN)
        imported(subscriber, 2)
        assert subscriber.lease.epoch() == 2
    assert set(content_of(database_url)) == {"/a"}


def test_who_reset_what_is_written_down(feed: Feed, worker: Worker) -> None:
    for number in range(3):
        feed.add(page(f"/n{number}"))
    with following(worker) as follower:
        worker.run()
        reset(follower, feed, 0)
    rows = rows_of(
        worker.url,
        "SELECT subscriber, publisher_agent, issued_by, action, detail FROM bookkeeping.audit "
        "WHERE action = 'RESET'",
    )
    assert rows == [("sub", "main", "operator", "RESET", {"from": 2, "to": 0, "epoch": 2})]


@pytest.mark.parametrize("to", [-1, 0], ids=["where it is", "forward"])
def test_a_clear_that_was_not_done_does_not_remove_what_a_reset_brings_back(
    feed: Feed, worker: Worker, to: int
) -> None:
    with following(worker) as follower:
        worker.begin()
        last = [feed.add(page(f"/n{number}")) for number in range(4)][-1]
        stopped(follower, feed)
        cleared = feed.clear("sub", last)
        follower.catch_up()
        assert [state for state, *_ in reported(worker, feed, cleared)] == [CommandState.SEEN]
        assert reset(follower, feed, to)[0] is APPLIED
        worker.run()
    assert set(content_of(worker.url)) == {f"/n{number}" for number in range(to + 1, 4)}
    (_, (state, removed, reason)) = reported(worker, feed, cleared)
    assert (state, removed) == (REJECTED, 0)
    assert f"reset to {to}" in reason


def test_a_subscription_that_never_ran_is_stopped_and_reset(feed: Feed, worker: Worker) -> None:
    offsets = [feed.add(page(f"/n{number}")) for number in range(4)]
    with following(worker) as follower:
        assert reset(follower, feed, offsets[1])[0] is APPLIED
        worker.run()
    assert set(content_of(worker.url)) == {"/n2", "/n3"}


def test_statuses_that_were_on_their_way_do_not_hide_those_that_come_after_a_reset(
    feed: Feed, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, may_go_on = threading.Event(), threading.Event()
    unsent = statuses._unsent

    def slowly(*arguments: object) -> object:
        found = unsent(*arguments)  # type: ignore[arg-type]
        if found:
            read.set()
            assert may_go_on.wait(120)
        return found

    offsets = [feed.add(page(f"/n{number}")) for number in range(4)]
    with following(worker) as follower:
        worker.run()
        monkeypatch.setattr(statuses, "_unsent", slowly)
        sending = threading.Thread(target=worker.send_statuses)
        sending.start()
        assert read.wait(120)
        stopped(follower, feed)
        feed.reset("sub", 0)
        follower.catch_up()
        may_go_on.set()
        sending.join(120)
        monkeypatch.undo()
        feed.control("sub", DesiredState.RUN)
        follower.catch_up()
        worker.run()
    worker.send_statuses()
    again = [s.offset for s in feed.statuses() if s.status is Status.IMPORTED]
    assert again[:4] == offsets
    assert set(offsets[1:]) <= set(again[4:])


class TestAnotherLog:
    """A journal that was created anew; only the one in memory lets a test do that."""

    @pytest.fixture
    def journal_url(self) -> str:
        return f"memory://{uuid.uuid4()}"

    def test_r24_a_reset_lets_a_subscription_follow_the_new_one(
        self, feed: Feed, worker: Worker
    ) -> None:
        for number in range(5):
            feed.add(page(f"/old/{number}"))
        with following(worker) as follower:
            worker.run()
            create_anew(feed)
            feed.add(page("/new"))
            assert reset(follower, feed, -1)[0] is APPLIED
            worker.run()
            worker.send_statuses()
        assert "/new" in content_of(worker.url)
        reported_now = [s for s in feed.statuses() if s.journal_id == identity(feed.journal)]
        assert [s.offset for s in reported_now] == [0]

    def test_r24_a_reset_for_the_old_one_is_refused(self, feed: Feed, workers: Workers) -> None:
        worker = workers()
        feed.add(page("/a"))
        with following(worker) as follower:
            worker.run()
            stopped(follower, feed)
        command_id = feed.reset("sub", -1)
        create_anew(feed)
        with following(worker):
            assert reported(worker, feed, command_id)[-1][0] is REJECTED
        assert position_of(worker.url).offset == 0


def identity(journal: Journal) -> str:
    return journal.identity(TOPICS.package)
