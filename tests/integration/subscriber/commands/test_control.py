"""Pause, resume and stop at the subscriber: at once, for good, and never in the middle."""

import threading
import uuid
from collections.abc import Callable

import pytest

from packhorse.wire.messages import (
    ClearCommand,
    CommandState,
    ControlCommand,
    DesiredState,
    SubscriptionState,
)
from packhorse_services.subscriber.assembly import SubscriberProgram
from packhorse_services.subscriber.importing.attempts import RetryPolicy
from packhorse_services.subscriber.importing.subscription import Subscription
from tests.harness.clock import ManualClock
from tests.harness.commands import following, reported
from tests.harness.feed import Feed, page
from tests.harness.postgres import Databases
from tests.harness.subscriber import Worker, assert_is_the_fold, content_of, rows_of
from tests.harness.waiting import eventually
from tests.integration.subscriber.conftest import Workers
from tests.integration.subscriber.running import imported, running, subscription

PAUSE, RUN, STOP = DesiredState.PAUSE, DesiredState.RUN, DesiredState.STOP
SESSIONS = (
    "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'packhorse-subscription %' "
    "AND datname = current_database()"
)


@pytest.fixture(params=["memory", "sql"])
def journal_url(request: pytest.FixtureRequest, databases: Databases) -> str:
    """Each test on the journal in memory and on the one in SQL."""
    return databases.new("journal") if request.param == "sql" else f"memory://{uuid.uuid4()}"


def shows(subscriber: SubscriberProgram, state: SubscriptionState, agent: str = "main") -> None:
    eventually(lambda: subscription(subscriber, agent).state is state, what=f"{agent} is {state}")


def announces(feed: Feed, state: SubscriptionState) -> None:
    eventually(
        lambda: [each.states[0].state for each in feed.announcements()[-1:]] == [state],
        what=f"{state} is announced",
    )


def test_a_paused_subscription_imports_nothing_until_resumed(feed: Feed, database_url: str) -> None:
    with running(feed, database_url, announce_s=900.0) as subscriber:
        imported(subscriber, feed.add(page("/a")))
        command_id = feed.control("sub", PAUSE)
        announces(feed, SubscriptionState.PAUSED)
        waiting = [feed.add(page(f"/n{number}")) for number in range(3)]
        other = feed.control("sub", PAUSE)
        eventually(lambda: len([s for s in feed.command_statuses() if s.command_id == other]) == 2)
        assert rows_of(database_url, SESSIONS) == [(1,)], "what is paused stays open"
        assert set(content_of(database_url)) == {"/a"}
        feed.control("sub", RUN)
        imported(subscriber, waiting[-1])
        announces(feed, SubscriptionState.IDLE)
    assert_is_the_fold(database_url, feed)
    states = [s.state for s in feed.command_statuses() if s.command_id == command_id]
    assert states == [CommandState.SEEN, CommandState.APPLIED]


def test_a_stopped_subscription_closes_everything_and_says_so(
    feed: Feed, database_url: str
) -> None:
    with running(feed, database_url, announce_s=0.2) as subscriber:
        imported(subscriber, feed.add(page("/a")))
        feed.control("sub", STOP)
        announces(feed, SubscriptionState.STOPPED)
        feed.add(page("/b"))
        eventually(lambda: rows_of(database_url, SESSIONS) == [(0,)], what="sessions end")
        known = len(feed.announcements())
        eventually(lambda: len(feed.announcements()) > known + 2, what="it goes on announcing")
        state = feed.announcements()[-1].states[0]
        assert (state.state, state.offset) == (SubscriptionState.STOPPED, 0)
        assert set(content_of(database_url)) == {"/a"}
        feed.control("sub", RUN)
        imported(subscriber, 1)
    assert_is_the_fold(database_url, feed)


@pytest.mark.parametrize(
    ("desired", "state"), [(PAUSE, SubscriptionState.PAUSED), (STOP, SubscriptionState.STOPPED)]
)
def test_what_was_asked_survives_a_restart(
    feed: Feed, database_url: str, desired: DesiredState, state: SubscriptionState
) -> None:
    with running(feed, database_url) as subscriber:
        imported(subscriber, feed.add(page("/a")))
        feed.control("sub", desired)
        shows(subscriber, state)
    feed.add(page("/b"))
    with running(feed, database_url) as subscriber:
        shows(subscriber, state)
        assert subscription(subscriber).offset == 0
        assert set(content_of(database_url)) == {"/a"}
        feed.control("sub", RUN)
        imported(subscriber, 1)


def test_r12_a_copy_stands_still_as_its_source_did_and_has_its_own_commands(
    feed: Feed, database_url: str, databases: Databases
) -> None:
    with running(feed, database_url) as source:
        imported(source, feed.add(page("/a")))
        feed.control("sub", PAUSE)
        shows(source, SubscriptionState.PAUSED)
    url = databases.copy(database_url)
    before = len(feed.command_statuses())
    with running(feed, url, subscriber="copy") as copy:
        shows(copy, SubscriptionState.PAUSED)
        last = feed.add(page("/b"))
        command_id = feed.control("copy", RUN)
        imported(copy, last)
        eventually(lambda: len(feed.command_statuses()) == before + 2)
    assert {s.command_id for s in feed.command_statuses()[before:]} == {command_id}


def test_a_command_for_a_subscriber_that_is_away_takes_effect_before_its_first_import(
    feed: Feed, database_url: str
) -> None:
    with running(feed, database_url) as subscriber:
        imported(subscriber, feed.add(page("/a")))
    feed.control("sub", PAUSE)
    feed.add(page("/b"))
    with running(feed, database_url) as subscriber:
        shows(subscriber, SubscriptionState.PAUSED)
    assert set(content_of(database_url)) == {"/a"}


def test_subscriptions_are_paused_one_by_one(feed: Feed, database_url: str) -> None:
    with running(feed, database_url, publisher_agents=("main", "other")) as subscriber:
        imported(subscriber, feed.add(page("/a")))
        feed.control("sub", PAUSE, agent="main")
        shows(subscriber, SubscriptionState.PAUSED)
        feed.add(page("/b"))
        imported(subscriber, feed.add(page("/c"), agent="other"), "other")
        assert subscription(subscriber).state is SubscriptionState.PAUSED
    assert set(content_of(database_url)) == {"/a", "/c"}


def test_a_subscriber_that_is_not_editable_is_paused_and_not_cleared(
    feed: Feed, workers: Workers
) -> None:
    worker = workers(editable=False)
    with following(worker) as follower:
        last = feed.add(page("/a"))
        paused, cleared = feed.control("sub", PAUSE), feed.clear("sub", last)
        resumed = feed.control("sub", RUN)
        follower.catch_up()
        worker.run()
    assert [state for state, _, _ in reported(worker, feed, paused)] == [
        CommandState.SEEN,
        CommandState.APPLIED,
    ]
    (_, (state, removed, reason)) = reported(worker, feed, cleared)
    assert (state, removed) == (CommandState.REJECTED, 0)
    assert "not editable" in reason
    assert reported(worker, feed, resumed)[-1][0] is CommandState.APPLIED
    assert set(content_of(worker.url)) == {"/a"}


def test_a_package_that_waits_for_its_retry_is_not_tried_while_paused(
    feed: Feed, workers: Workers
) -> None:
    clock = ManualClock()
    worker = workers(policy=RetryPolicy(-1, 10.0, 10.0), clock=clock)
    bad = feed.bad()
    last = feed.add(page("/next"))
    with following(worker) as follower:
        worker.step_until_failed(2 - 1)
        feed.control("sub", PAUSE)
        follower.catch_up()
        clock.advance(30)
        assert worker.session is not None
        for _ in range(5):
            worker.session.step()
        state = worker.report.state
        assert (state.state, state.retries) == (SubscriptionState.PAUSED, 1)
        assert state.last_error, "what is wrong with the head is still reported"

        command_id = feed.clear("sub", bad)  # SLING-12691: at once, also while paused
        follower.catch_up()
        worker.run(lambda: worker.session is not None and worker.session.position.offset == bad)
        assert worker.report.state.state is SubscriptionState.PAUSED
        assert reported(worker, feed, command_id)[-1][:2] == (CommandState.APPLIED, 1)
        feed.control("sub", RUN)
        follower.catch_up()
        worker.run()
    assert worker.report.state.offset == last
    assert_is_the_fold(worker.url, feed, removed=[bad])


REFUSED: dict[str, Callable[[Worker], ClearCommand | ControlCommand]] = {
    "journal": lambda w: ControlCommand("c", w.name, w.agent, PAUSE, journal_id="another"),
    "agent": lambda w: ControlCommand("c", w.name, "unknown", PAUSE),
    "offsets of another journal": lambda w: ClearCommand(
        "c", w.name, w.agent, 0, journal_id="another"
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_r24_a_command_that_is_not_for_this_subscription_and_log_is_refused(
    feed: Feed, worker: Worker, case: str
) -> None:
    with following(worker) as follower:
        feed.command(REFUSED[case](worker))
        follower.catch_up()
        feed.add(page("/a"))
        worker.run()
    seen, refused = reported(worker, feed, "c")
    assert (seen[0], refused[0]) == (CommandState.SEEN, CommandState.REJECTED)
    assert refused[2] != ""
    assert set(content_of(worker.url)) == {"/a"}
    rows = rows_of(worker.url, "SELECT issued_by, detail ? 'rejected' FROM bookkeeping.audit")
    assert rows == [("operator", True)]


def test_a_repeated_command_is_done_and_reported_once(feed: Feed, worker: Worker) -> None:
    command = ControlCommand("c1", worker.name, worker.agent, PAUSE)
    with following(worker) as follower:
        feed.command(command)
        feed.command(ControlCommand("c2", worker.name, worker.agent, RUN))
        feed.command(command)
        follower.catch_up()
        assert worker.control.desired(worker.agent) is RUN, "the repeat did not pause it again"
    assert len(reported(worker, feed, "c1")) == 2
    assert len(reported(worker, feed, "c1")) == 2, "what is sent is not sent again"
    audited = "SELECT action, detail ->> 'from', detail ->> 'to' FROM bookkeeping.audit ORDER BY id"
    assert rows_of(worker.url, audited) == [("PAUSE", "RUN", "PAUSE"), ("RUN", "PAUSE", "RUN")]


def test_what_is_reported_about_commands_is_sent_again_until_it_is_marked(
    feed: Feed, worker: Worker
) -> None:
    with following(worker) as follower:
        feed.control("sub", PAUSE)
        follower.catch_up()
    worker.send_statuses()
    rows_of(worker.url, "UPDATE bookkeeping.command_status SET sent = false RETURNING 1")
    worker.send_statuses()
    assert [s.state for s in feed.command_statuses()] == [
        CommandState.SEEN,
        CommandState.APPLIED,
    ] * 2


def test_a_standby_applies_nothing_and_takes_over_what_was_asked(
    feed: Feed, database_url: str
) -> None:
    with running(feed, database_url) as first:
        imported(first, feed.add(page("/a")))
        with running(feed, database_url) as second:
            feed.control("sub", PAUSE)
            shows(first, SubscriptionState.PAUSED)
            feed.add(page("/b"))
            for component in reversed(first.components):
                component.stop(60)
            shows(second, SubscriptionState.PAUSED)
            feed.control("sub", RUN)
            imported(second, 1)
            eventually(lambda: len(feed.command_statuses()) == 4, what="all is reported")
    assert len(feed.command_statuses()) == 4


def test_a_subscription_that_may_run_again_just_as_it_stops_does_run(
    feed: Feed, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = threading.Event()
    stand_still = Subscription._stand_still

    def after_a_run_command(one: Subscription, epoch: int, stopping: threading.Event) -> None:
        """Let RUN come between the subscription's look and its wait."""
        if not late.is_set():
            feed.control("sub", DesiredState.RUN)
            desired = one._ctx.control.desired
            eventually(lambda: desired("main") is DesiredState.RUN, what="RUN is known")
            late.set()
        stand_still(one, epoch, stopping)

    monkeypatch.setattr(Subscription, "_stand_still", after_a_run_command)
    with running(feed, database_url, lease_s=3600.0) as subscriber:
        imported(subscriber, feed.add(page("/a")))
        feed.control("sub", DesiredState.STOP)
        assert late.wait(120)
        imported(subscriber, feed.add(page("/b")))
