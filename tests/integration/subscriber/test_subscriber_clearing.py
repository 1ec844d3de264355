"""Clear commands: exact, durable, obeyed while blocked and before the first import (R19)."""

import threading

import psycopg
import pytest

from packhorse.messaging.api import Outgoing
from packhorse.wire.messages import CommandState, DesiredState, Status
from packhorse_services.subscriber.attempts import RetryPolicy
from packhorse_services.subscriber.clearances import Clearance
from packhorse_services.subscriber.commands.follower import CommandsBehind
from packhorse_services.subscriber.desk import GroupLimits
from tests.harness.clock import ManualClock
from tests.harness.commands import Following, following, told
from tests.harness.feed import AGENT, TOPICS, Feed, page
from tests.harness.journals import eventually
from tests.harness.postgres import Databases
from tests.harness.subscriber import Worker, assert_is_the_fold, content_of, rows_of
from tests.integration.subscriber.conftest import Workers
from tests.integration.subscriber.test_subscriber_journal import create_anew, database_name


def removed(worker: Worker, feed: Feed) -> list[tuple[int, str]]:
    worker.send_statuses()
    return [(s.offset, s.command_id) for s in feed.statuses() if s.status is Status.REMOVED]


def test_r19_a_blocked_package_leaves_at_once(feed: Feed, workers: Workers) -> None:
    worker = workers(policy=RetryPolicy(-1, 900.0, 900.0), clock=ManualClock())
    bad = feed.bad()
    feed.add(page("/next"))
    with following(worker) as follower:
        worker.step_until_failed(1)
        feed.clear(worker.name, bad, "c1")
        follower.catch_up()
        worker.run()
    assert removed(worker, feed) == [(bad, "c1")]
    assert_is_the_fold(worker.url, feed, removed=[bad])


def test_r19_nothing_above_the_offset_is_removed(feed: Feed, worker: Worker) -> None:
    with following(worker) as follower:
        feed.add(page("/imported"))
        worker.run()
        offsets = [feed.add(page(f"/n{number}")) for number in range(6)]
        feed.clear(worker.name, offsets[2], "c1")
        follower.catch_up()
        worker.run()
    assert removed(worker, feed) == [(offset, "c1") for offset in offsets[:3]]
    assert_is_the_fold(worker.url, feed, removed=offsets[:3])


def test_r19_a_command_far_ahead_removes_only_what_was_there(feed: Feed, worker: Worker) -> None:
    with following(worker) as follower:
        here = feed.add(page("/a"))
        feed.clear(worker.name, 10**12)
        follower.catch_up()
        later = feed.add(page("/b"))
        worker.run()
    assert [offset for offset, _ in removed(worker, feed)] == [here]
    assert_is_the_fold(worker.url, feed, removed=[here])
    assert later == here + 1


def test_r19_another_agents_packages_are_not_touched(feed: Feed, workers: Workers) -> None:
    worker = workers()
    with following(worker) as follower:
        mine = feed.add(page("/mine"))
        feed.clear(worker.name, mine, agent="other")
        feed.clear("another-subscriber", mine)
        follower.catch_up()
        worker.run()
    assert removed(worker, feed) == []
    assert set(content_of(worker.url)) == {"/mine"}


def test_r19_a_repeated_command_changes_nothing(feed: Feed, worker: Worker) -> None:
    with following(worker) as follower:
        first = feed.add(page("/a"))
        for _ in range(3):
            feed.clear(worker.name, first, "c1")
        follower.catch_up()
        feed.add(page("/b"))
        worker.run()
        feed.clear(worker.name, first, "c1")
        follower.catch_up()
        feed.add(page("/c"))
        worker.run()
    assert removed(worker, feed) == [(first, "c1")]
    assert_is_the_fold(worker.url, feed, removed=[first])


def test_sling_10112_commands_are_read_before_the_first_import(
    feed: Feed, workers: Workers
) -> None:
    first = workers()
    with following(first):
        feed.add(page("/a"))
        first.run()
    first.die()
    bad = feed.bad()
    for number in range(50):
        feed.clear("others", number)
    feed.clear(first.name, bad, "while away")
    second = workers()
    with following(second):
        second.run()
    assert removed(second, feed) == [(bad, "while away")]


def test_r19_a_command_survives_the_worker_that_received_it(feed: Feed, workers: Workers) -> None:
    first = workers(policy=RetryPolicy(-1, 900.0, 900.0), clock=ManualClock())
    bad = feed.bad()
    with following(first) as follower:
        feed.clear(first.name, bad, "c1")
        follower.catch_up()
    first.die()
    feed.journal.truncate(TOPICS.command, 1, feed.journal.partition_of(TOPICS.command, "sub"))
    second = workers()
    with following(second):
        second.run()
    assert removed(second, feed) == [(bad, "c1")]


def test_r19_stored_commands_are_in_force_before_the_topic_counts_as_read(
    feed: Feed, workers: Workers
) -> None:
    first = workers(policy=RetryPolicy(-1, 900.0, 900.0), clock=ManualClock())
    bad = feed.bad()
    with following(first) as follower:
        feed.clear(first.name, bad, "c1")
        follower.catch_up()
    first.die()
    second = workers()
    covering: list[Clearance | None] = []

    def catch_up_and_look() -> None:
        with following(second):
            journal_id = feed.journal.identity(TOPICS.package)
            covering.append(second.clearances.covering(AGENT, journal_id, bad))

    looking = threading.Thread(target=catch_up_and_look)
    with psycopg.connect(second.url) as other:
        other.execute("LOCK TABLE bookkeeping.clear_command")
        looking.start()
        eventually(lambda: waits_for_a_lock(second.url), "the follower's first look at the table")
        looking.join(0.5)
    looking.join(20)
    assert [found and found.command_id for found in covering] == ["c1"]


def waits_for_a_lock(url: str) -> bool:
    return rows_of(url, "SELECT FROM pg_locks WHERE NOT granted") != []


def test_r19_a_new_database_does_not_obey_its_predecessors_commands(
    feed: Feed, workers: Workers, databases: Databases
) -> None:
    worker = workers()
    with following(worker) as follower:
        feed.add(page("/a"))
        feed.clear(worker.name, 0)
        follower.catch_up()
    fresh = workers(url=databases.new())
    with following(fresh):
        fresh.run()
    assert removed(fresh, feed) == []
    assert set(content_of(fresh.url)) == {"/a"}


def test_r12_a_copy_does_not_obey_its_sources_commands(
    feed: Feed, workers: Workers, databases: Databases
) -> None:
    source = workers()
    with following(source) as follower:
        source.begin()
        feed.add(page("/a"))
        feed.clear(source.name, 0)
        follower.catch_up()
    source.die()
    copy = workers(url=databases.copy(database_name(source.url)), name="copy")
    with following(copy):
        copy.run()
    assert set(content_of(copy.url)) == {"/a"}


def test_r24_a_command_means_offsets_of_its_own_journal_only(feed: Feed, workers: Workers) -> None:
    worker = workers()
    with following(worker) as follower:
        for number in range(5):
            feed.add(page(f"/n{number}"))
        feed.clear(worker.name, 4)
        follower.catch_up()
        create_anew(feed)
        feed.add(page("/new"))
        worker.run()
    assert set(content_of(worker.url)) == {"/new"}


def test_r14_an_unreadable_command_is_passed_over(feed: Feed, worker: Worker) -> None:
    with following(worker) as follower:
        first = feed.add(page("/a"))
        feed.journal.append(TOPICS.command, Outgoing(b"\xff\xff", {}, worker.name)).result(10)
        feed.clear(worker.name, first, "c\0\ud800"[:2])
        follower.catch_up()
        worker.run()
    assert removed(worker, feed) == [(first, "c")]


def test_a_thousand_waiting_packages_are_cleared_in_few_transactions(
    feed: Feed, worker: Worker
) -> None:
    with following(worker) as follower:
        worker.begin()
        offsets = [feed.add(page(f"/n{number}")) for number in range(1000)]
        feed.clear(worker.name, offsets[-1])
        follower.catch_up()
        worker.run()
    assert len(removed(worker, feed)) == 1000
    assert rows_of(worker.url, "SELECT count(*) FROM content.node WHERE path <> '/'") == [(0,)]


def test_commands_are_followed_again_after_the_database_was_away(
    feed: Feed, worker: Worker
) -> None:
    with following(worker) as follower:
        worker.begin()
        rows_of(
            worker.url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'packhorse-subscriber' AND datname = current_database()",
        )
        first = feed.add(page("/a"))
        feed.clear(worker.name, first)
        eventually(lambda: caught_up(follower), "the follower goes on")
        worker.run()
    assert [offset for offset, _ in removed(worker, feed)] == [first]


def caught_up(follower: Following) -> bool:
    try:
        follower.catch_up()
    except CommandsBehind:
        return False
    return True


@pytest.mark.parametrize("count", [1, 40])
def test_r19_a_cleared_package_tells_its_attempts(feed: Feed, workers: Workers, count: int) -> None:
    worker = workers()
    offsets = [feed.bad() for _ in range(count)]
    worker.step_until_failed(3)
    worker.clear(offsets[-1])
    worker.run()
    worker.send_statuses()
    first, *others = [status.attempts for status in feed.statuses()]
    assert first >= 3
    assert set(others) <= {0}


def ending(worker: Worker, feed: Feed, command_id: str) -> list[tuple[CommandState, int]]:
    return [(state, count) for state, count, _ in told(worker, feed, command_id)]


def test_lim_6_a_clear_tells_how_many_it_removed(feed: Feed, worker: Worker) -> None:
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


def test_lim_6_the_count_is_exact_over_pieces_and_restarts(feed: Feed, workers: Workers) -> None:
    limits = GroupLimits(packages=3, passed=1, passed_s=0)
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
        limits=GroupLimits(passed=1_000, passed_s=900.0),
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


def test_what_was_told_long_ago_is_forgotten_and_what_goes_on_is_not(
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
    """As after an upgrade: an older version kept the clear and no row that says it was seen."""
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
