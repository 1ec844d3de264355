"""What is reported about a clear: that it was seen, how many packages it removed, and its end."""

from typing import Any

import psycopg
import pytest

from packhorse.wire.messages import CommandState, DesiredState
from packhorse_services.subscriber.importing import importer
from packhorse_services.subscriber.importing.attempts import RetryPolicy
from packhorse_services.subscriber.importing.context import GroupLimits
from packhorse_services.subscriber.importing.importer import Importer
from tests.harness.clock import ManualClock
from tests.harness.commands import following, removed, reported
from tests.harness.feed import Feed, page
from tests.harness.subscriber import Worker, assert_is_the_fold, rows_of
from tests.integration.subscriber.conftest import Workers


@pytest.mark.parametrize("count", [1, 40])
def test_r19_a_cleared_package_reports_its_attempts(
    feed: Feed, workers: Workers, count: int
) -> None:
    worker = workers()
    offsets = [feed.bad() for _ in range(count)]
    worker.step_until_failed(3)
    worker.clear(offsets[-1])
    worker.run()
    worker.send_statuses()
    first, *others = [status.attempts for status in feed.statuses()]
    assert first >= 3
    assert set(others) <= {0}


def test_r19_so_it_does_when_its_removal_failed_at_first(
    feed: Feed, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets = [feed.bad() for _ in range(3)]
    worker.step_until_failed(3)
    worker.clear(offsets[-1])
    with monkeypatch.context() as cut:
        cut.setattr(Importer, "commit", failing)
        with pytest.raises(psycopg.OperationalError):
            worker.run()
    worker.begin()
    worker.run()
    worker.send_statuses()
    assert [status.attempts for status in feed.statuses()] == [3, 0, 0]


def failing(*_: object) -> None:
    raise psycopg.OperationalError("cut off")


def ending(worker: Worker, feed: Feed, command_id: str) -> list[tuple[CommandState, int]]:
    return [(state, count) for state, count, _ in reported(worker, feed, command_id)]


def test_a_clear_reports_how_many_it_removed(feed: Feed, worker: Worker) -> None:
    with following(worker) as follower:
        worker.begin()
        offsets = [feed.add(page(f"/n{number}")) for number in range(10)]
        feed.add(page("/other"), agent="other")
        seen = feed.clear(worker.name, offsets[-1])
        follower.catch_up()
        assert ending(worker, feed, seen) == [(CommandState.SEEN, 0)]
        worker.run()
        nothing = feed.clear(worker.name, offsets[3])
        follower.catch_up()
    assert ending(worker, feed, seen) == [(CommandState.SEEN, 0), (CommandState.APPLIED, 10)]
    assert ending(worker, feed, nothing) == [(CommandState.SEEN, 0), (CommandState.APPLIED, 0)]


def test_a_clear_of_an_empty_log_ends_though_the_subscription_never_ran(
    feed: Feed, worker: Worker
) -> None:
    with following(worker) as follower:
        feed.control(worker.name, DesiredState.STOP)
        command_id = feed.clear(worker.name, 0)
        follower.catch_up()
    assert ending(worker, feed, command_id) == [(CommandState.SEEN, 0), (CommandState.APPLIED, 0)]


def test_the_count_is_exact_over_pieces_and_restarts(feed: Feed, workers: Workers) -> None:
    limits = GroupLimits(packages=3, passed_s=0)
    first = workers(limits=limits)
    with following(first) as follower:
        first.begin()
        offsets = [feed.add(page(f"/n{number}")) for number in range(10)]
        command_id = feed.clear(first.name, offsets[7])
        follower.catch_up()
        session = first.session
        assert session is not None
        first.run(lambda: session.position.offset >= offsets[2])
        assert ending(first, feed, command_id) == [(CommandState.SEEN, 0)]
    first.die()
    second = workers(limits=limits)
    with following(second):
        second.run()
    assert ending(second, feed, command_id)[-1] == (CommandState.APPLIED, 8)
    assert len(removed(second, feed)) == 8
    assert_is_the_fold(second.url, feed, removed=offsets[:8])


def test_overlapping_clears_count_each_package_once(feed: Feed, worker: Worker) -> None:
    with following(worker) as follower:
        worker.begin()
        offsets = [feed.add(page(f"/n{number}")) for number in range(10)]
        far, near = feed.clear(worker.name, offsets[-1]), feed.clear(worker.name, offsets[3])
        follower.catch_up()
        worker.run()
    assert ending(worker, feed, near)[-1] == (CommandState.APPLIED, 4)
    assert ending(worker, feed, far)[-1] == (CommandState.APPLIED, 6)


def test_a_clear_ends_though_only_other_agents_packages_lie_below_its_bound(
    feed: Feed, workers: Workers
) -> None:
    worker = workers(
        policy=RetryPolicy(-1, 900.0, 900.0),
        clock=ManualClock(),
        limits=GroupLimits(passed_s=900.0),
    )
    with following(worker) as follower:
        worker.begin()
        below = [feed.add(page("/x"), agent="other") for _ in range(3)]
        feed.bad()
        worker.step_until_failed(1)
        command_id = feed.clear(worker.name, below[-1])
        follower.catch_up()
        worker.run(lambda: ending(worker, feed, command_id)[-1] == (CommandState.APPLIED, 0))
    assert removed(worker, feed) == []


def test_a_clear_ends_that_came_while_the_last_package_below_its_bound_was_imported(
    feed: Feed, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply, commands = importer.apply, list[str]()

    def clear_meanwhile(*given: Any, **more: Any) -> None:
        apply(*given, **more)
        commands.append(feed.clear(worker.name, last))
        follower.catch_up()

    monkeypatch.setattr(importer, "apply", clear_meanwhile)
    with following(worker) as follower:
        last = feed.add(page("/a"))
        worker.run()
        worker.session.step()  # type: ignore[union-attr]
    [cleared] = commands
    assert ending(worker, feed, cleared) == [(CommandState.SEEN, 0), (CommandState.APPLIED, 0)]


def test_a_clear_that_was_passed_ends_with_the_next_start_of_who_does_not_run(
    feed: Feed, worker: Worker
) -> None:
    with following(worker) as follower:
        worker.begin()
        command_id = feed.clear(worker.name, feed.add(page("/a")))
        follower.catch_up()
    rows_of(worker.url, "UPDATE bookkeeping.position SET log_offset = 0 RETURNING 1")
    with following(worker):
        assert ending(worker, feed, command_id)[-1] == (CommandState.APPLIED, 0)


def test_what_was_reported_long_ago_is_forgotten_and_what_goes_on_is_not(
    feed: Feed, worker: Worker
) -> None:
    with following(worker) as follower:
        worker.begin()
        last = feed.add(page("/a"))
        done = feed.clear(worker.name, -1)
        under_way = feed.clear(worker.name, last)
        follower.catch_up()
        worker.send_statuses()
        rows_of(
            worker.url,
            "UPDATE bookkeeping.command_status SET decided_at = now() - interval '31 days' "
            "RETURNING 1",
        )
        recent = feed.control(worker.name, DesiredState.RUN)
        follower.catch_up()
        worker.send_statuses()
    known = {
        one for (one,) in rows_of(worker.url, "SELECT command_id FROM bookkeeping.command_status")
    }
    assert known == {under_way, recent}
    assert done not in known


def test_r19_a_clear_that_is_known_is_kept_once(feed: Feed, worker: Worker) -> None:
    """Also where no row says that it was seen."""
    last = feed.add(page("/a"))
    with following(worker) as follower:
        worker.begin()
        feed.control("sub", DesiredState.PAUSE)
        feed.clear("sub", last, "c1")
        follower.catch_up()
        with psycopg.connect(worker.url) as connection:
            connection.execute("DELETE FROM bookkeeping.command_status")
        feed.clear("sub", last, "c1")
        follower.catch_up()
        worker.run()
    assert removed(worker, feed) == [(last, "c1")]
    assert ending(worker, feed, "c1")[-1] == (CommandState.APPLIED, 1)
