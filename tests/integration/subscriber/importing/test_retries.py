"""A package that fails: tried again, blocking its subscription, until it is given up (R10)."""

from typing import Any

import psycopg
import pytest

from packhorse.wire.messages import PackageMessage, Status, SubscriptionState
from packhorse_services.subscriber.importing import importer
from packhorse_services.subscriber.importing.attempts import RetryPolicy
from packhorse_services.subscriber.journal.failures import SessionLost
from tests.harness.borrowing import borrowed
from tests.harness.clock import ManualClock
from tests.harness.crash import Crash
from tests.harness.feed import Feed, page
from tests.harness.postgres import end_sessions
from tests.harness.subscriber import (
    Worker,
    assert_is_the_fold,
    content_of,
    failed,
    rows_of,
)
from tests.integration.subscriber.conftest import Workers


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_r10_max_retries_are_so_many_after_the_first_attempt(
    feed: Feed, workers: Workers, retries: int
) -> None:
    worker = workers(policy=RetryPolicy(retries, 0.0, 0.0))
    bad = feed.bad()
    feed.add(page("/next"))
    worker.run()
    assert failed(worker, feed) == [(bad, retries + 1)]
    assert_is_the_fold(worker.url, feed, removed=[bad])


def test_r10_a_package_that_waits_by_itself_is_tried_no_more_often(
    feed: Feed, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = workers(policy=RetryPolicy(0), clock=ManualClock())  # it is given up without a wait
    feed.add(page("/a"))
    worker.run()  # so that the next one is not the first after a start
    tries, apply = list[Any](), importer.apply
    monkeypatch.setattr(importer, "apply", lambda *a, **m: tries.append(a) or apply(*a, **m))
    feed.bad()
    worker.run()
    assert len(tries) == 1


def test_the_counter_is_not_inherited_by_the_next_bad_package(feed: Feed, workers: Workers) -> None:
    worker = workers(policy=RetryPolicy(2, 0.0, 0.0))
    bad = [feed.bad() for _ in range(4)]
    feed.add(page("/end"))
    worker.run()
    assert failed(worker, feed) == [(offset, 3) for offset in bad]
    assert_is_the_fold(worker.url, feed, removed=bad)


def test_r10_without_a_limit_a_bad_package_blocks_the_subscription(
    feed: Feed, worker: Worker
) -> None:
    feed.add(page("/before"))
    feed.bad()
    feed.add(page("/behind"))
    worker.step_until_failed(7)
    assert set(content_of(worker.url)) == {"/before"}
    assert worker.report.state.state is SubscriptionState.BLOCKED
    assert "ck_node_properties" in worker.report.state.last_error
    assert "/bad" not in worker.report.state.last_error  # the row, which the database quotes
    assert worker.report.state.blocked_since_ms > 0


def test_r16_the_first_failures_do_not_look_blocked(feed: Feed, worker: Worker) -> None:
    feed.bad()
    worker.step_until_failed(2)
    assert worker.report.state.state is SubscriptionState.RUNNING
    worker.step_until_failed(3)
    assert worker.report.state.state is SubscriptionState.BLOCKED


def test_r10_back_off_doubles_up_to_its_limit(feed: Feed, workers: Workers) -> None:
    clock = ManualClock()
    worker = workers(policy=RetryPolicy(-1, 5.0, 60.0), clock=clock)
    feed.bad()
    worker.step_until_failed(1)
    assert worker.session is not None
    waits = []
    for _ in range(6):
        waits.append(worker.session.step())
        clock.advance(waits[-1] - 0.5)
        assert worker.session.step() == pytest.approx(0.5)
        clock.advance(0.5)
        worker.session.step()
    assert waits == pytest.approx([5, 10, 20, 40, 60, 60])
    assert worker.report.state.retries == 7


@pytest.mark.parametrize("wall_ms", [0, 4_000_000_000_000])
def test_r28_a_wall_clock_that_jumps_moves_no_back_off(
    feed: Feed, workers: Workers, wall_ms: int
) -> None:
    clock = ManualClock()
    worker = workers(policy=RetryPolicy(-1, 5.0, 60.0), clock=clock)
    feed.bad()
    worker.step_until_failed(1)
    assert worker.session is not None
    clock.jump(wall_ms)
    assert worker.session.step() == pytest.approx(5)
    clock.advance(5)
    worker.session.step()
    assert worker.report.state.retries == 2


def test_r10_one_bad_package_in_a_group_costs_the_others_nothing(
    feed: Feed, workers: Workers
) -> None:
    worker = workers(policy=RetryPolicy(1, 0.0, 0.0))
    feed.add(page("/start"))
    worker.run()
    for number in range(20):
        feed.add(page(f"/before/{number}"))
    bad = feed.bad()
    for number in range(20):
        feed.add(page(f"/after/{number}"))
    worker.run()
    assert failed(worker, feed) == [(bad, 2)]
    attempts = {s.attempts for s in feed.statuses() if s.status is Status.IMPORTED}
    assert attempts == {1}
    assert_is_the_fold(worker.url, feed, removed=[bad])


def test_r10_the_attempt_is_stored_before_the_try(
    feed: Feed, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = workers()
    feed.bad()
    seen: list[Any] = []
    commit = type(worker.context.importer).commit

    def watch(*arguments: Any) -> Any:
        seen.append(rows_of(worker.url, "SELECT log_offset, attempts FROM bookkeeping.attempt"))
        return commit(*arguments)

    monkeypatch.setattr(type(worker.context.importer), "commit", watch)
    worker.step_until_failed(3)
    assert seen[:3] == [[(0, 1)], [(0, 2)], [(0, 3)]]


@pytest.fixture
def _deadly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages of `/deadly` end the process that imports them."""
    apply = importer.apply

    def deadly_apply(
        connection: Any, packages: list[PackageMessage], *rest: Any, **more: Any
    ) -> None:
        apply(connection, packages, *rest, **more)
        if any(path.startswith("/deadly") for p in packages for path in p.entry.paths):
            raise Crash

    monkeypatch.setattr(importer, "apply", deadly_apply)


def live_and_die(worker: Worker) -> bool:
    """Run to the log's end; true when the worker was killed on the way."""
    try:
        worker.run()
    except Crash:
        worker.die()
        return True
    return False


@pytest.mark.usefixtures("_deadly")
def test_r10_a_package_that_kills_the_worker_is_given_up(feed: Feed, workers: Workers) -> None:
    policy = RetryPolicy(2, 0.0, 0.0)
    for number in range(10):
        feed.add(page(f"/good/{number}"))
    bad = feed.add(page("/deadly"))
    for number in range(10):
        feed.add(page(f"/fine/{number}"))
    lives = 1
    while live_and_die(workers(policy=policy)):
        lives += 1
        assert lives < 8
    assert lives == 5  # the group, three counted attempts, and the one that gives up
    assert_is_the_fold(workers().url, feed, removed=[bad])
    last = workers()
    assert failed(last, feed) == [(bad, 3)]
    assert "ended with the worker" in next(s.reason for s in feed.statuses() if s.reason)


@pytest.mark.usefixtures("_deadly")
def test_r10_every_start_gets_further_when_the_intent_is_lost_with_the_server(
    feed: Feed, workers: Workers
) -> None:
    for number in range(3):
        feed.add(page(f"/good/{number}"))
    bad = feed.add(page("/deadly"))
    lives = 1
    while live_and_die(workers(policy=RetryPolicy(0, 0.0, 0.0))):
        lives += 1
        assert lives < 12
        with psycopg.connect(workers().url) as connection:
            connection.execute("DELETE FROM bookkeeping.attempt WHERE attempts = 0")
    assert_is_the_fold(workers().url, feed, removed=[bad])


def test_r10_attempts_survive_a_restart(feed: Feed, workers: Workers) -> None:
    policy = RetryPolicy(5, 0.0, 0.0)
    first = workers(policy=policy)
    feed.add(page("/a"))
    first.run()
    bad = feed.bad()
    first.step_until_failed(4)
    row = rows_of(first.url, "SELECT attempts, last_error FROM bookkeeping.attempt")
    assert row == [(4, first.report.state.last_error)]
    first.die()
    second = workers(policy=policy)
    session = second.begin()
    assert second.arrived.wait(120)  # a step that finds nothing reports no retries
    session.step()
    assert second.report.state.retries >= 4
    assert "ck_node_properties" in second.report.state.last_error
    assert second.report.state.blocked_since_ms == first.report.state.blocked_since_ms
    second.run()
    assert failed(second, feed) == [(bad, 6)]


def cut(worker: Worker) -> None:
    """End the subscription's session at the server."""
    with borrowed(worker.url) as connection:
        end_sessions(connection, "packhorse-subscription%")


def test_r10_a_lost_connection_is_not_the_packages_fault(
    feed: Feed, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = workers(policy=RetryPolicy(0, 0.0, 0.0))
    feed.add(page("/a"))
    apply = importer.apply
    losses = iter(range(5))

    def lossy(*arguments: Any, **more: Any) -> None:
        apply(*arguments, **more)
        if next(losses, None) is not None:
            cut(worker)

    monkeypatch.setattr(importer, "apply", lossy)
    for _ in range(5):
        with pytest.raises(SessionLost):
            worker.run()
        worker.begin()
    worker.run()
    assert failed(worker, feed) == []
    assert_is_the_fold(worker.url, feed)


def test_r10_a_package_that_always_ends_the_session_is_given_up(
    feed: Feed, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = workers(policy=RetryPolicy(0, 0.0, 0.0))
    bad = feed.add(page("/a"))
    monkeypatch.setattr(importer, "apply", lambda *_, **__: cut(worker))
    sessions = 0
    while position_of_or_none(worker) != bad:
        sessions += 1
        assert sessions < 20
        try:
            worker.begin()
            worker.run()
        except SessionLost:
            continue
    assert sessions > 10
    assert failed(worker, feed) == [(bad, 1)]


def position_of_or_none(worker: Worker) -> int | None:
    found = rows_of(worker.url, "SELECT log_offset FROM bookkeeping.position")
    return found[0][0] if found else None
