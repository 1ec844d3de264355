"""Retry now: the package in front is tried at once, and the back-off begins anew (R20)."""

import pytest

from packhorse.errors import Permanent
from packhorse.wire.messages import CommandState, DesiredState
from packhorse_services.subscriber.importing.attempts import RetryPolicy
from packhorse_services.subscriber.importing.importer import Importer
from tests.harness.clock import ManualClock
from tests.harness.commands import following, reported
from tests.harness.feed import Feed, page
from tests.harness.subscriber import Worker, assert_is_the_fold, position_of, rows_of
from tests.integration.subscriber.conftest import Workers


@pytest.fixture
def worker(workers: Workers) -> Worker:
    return workers(policy=RetryPolicy(-1, 5.0, 900.0), clock=ManualClock())


def failing(worker: Worker, feed: Feed, times: int, bad: int | None = None) -> float:
    """Let the package in front fail so often; return the seconds that it now waits."""
    clock = worker.clock
    assert isinstance(clock, ManualClock)
    if bad is None:
        feed.bad()
    worker.step_until_failed(1)
    assert worker.session is not None
    for _ in range(times - 1):
        clock.advance(worker.session.step())
        worker.session.step()
    assert worker.report.state.retries == times
    return worker.session.step()


@pytest.mark.parametrize("resumed", [False, True])
def test_r20_the_head_is_tried_at_once_and_the_back_off_begins_anew(
    feed: Feed, worker: Worker, resumed: bool
) -> None:
    assert failing(worker, feed, 6) == pytest.approx(160.0)
    assert worker.session is not None
    with following(worker) as follower:
        if resumed:
            feed.control("sub", DesiredState.PAUSE)
            follower.catch_up()
            worker.session.step()
            command_id = feed.control("sub", DesiredState.RUN)
        else:
            command_id = feed.retry("sub")
        follower.catch_up()
        assert worker.session.step() == 0.0
        assert worker.report.state.retries == 7, "what was counted stays counted"
        assert worker.session.step() == pytest.approx(5.0)
        states = [state for state, _, _ in reported(worker, feed, command_id)]
        assert states == [CommandState.SEEN, CommandState.APPLIED]


def test_r20_a_repeated_retry_is_the_same_one(feed: Feed, worker: Worker) -> None:
    failing(worker, feed, 3)
    assert worker.session is not None
    with following(worker) as follower:
        command_id = feed.retry("sub")
        follower.catch_up()
        worker.session.step()
        assert worker.report.state.retries == 4
        feed.retry("sub", command_id=command_id)
        follower.catch_up()
        assert worker.session.step() == pytest.approx(5.0)
        assert worker.report.state.retries == 4
    audited = rows_of(worker.url, "SELECT action, issued_by FROM bookkeeping.audit")
    assert audited == [("RETRY", "operator")]


def test_r20_a_mended_package_is_imported_by_the_retry_and_not_later(
    feed: Feed, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(Importer, "commit", refuse)
        assert failing(worker, feed, 5, bad=feed.add(page("/mended"))) == pytest.approx(80.0)
    behind = feed.add(page("/behind"))
    with following(worker) as follower:
        feed.retry("sub")
        follower.catch_up()
        worker.run()
    assert position_of(worker.url).offset == behind
    assert_is_the_fold(worker.url, feed)


def refuse(*_: object) -> None:
    raise Permanent("no room for it")


@pytest.mark.parametrize("desired", [DesiredState.PAUSE, DesiredState.STOP])
def test_a_subscription_that_stands_still_is_not_made_to_try(
    feed: Feed, worker: Worker, desired: DesiredState
) -> None:
    failing(worker, feed, 2)
    with following(worker) as follower:
        feed.control("sub", desired)
        follower.catch_up()
        command_id = feed.retry("sub")
        follower.catch_up()
        state, _, reason = reported(worker, feed, command_id)[-1]
    assert state is CommandState.REJECTED
    assert "resume it" in reason
    assert worker.control.desired("main") is desired
