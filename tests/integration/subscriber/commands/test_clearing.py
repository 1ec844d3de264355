"""Clear commands: exact, durable, applied while blocked and before the first import (R19)."""

import threading

import psycopg

from packhorse.messaging.api import Outgoing
from packhorse.wire.messages import CommandState, Status
from packhorse_services.subscriber.commands.clear_commands import PendingClear
from packhorse_services.subscriber.importing.attempts import RetryPolicy
from tests.harness.borrowing import borrowed
from tests.harness.clock import ManualClock
from tests.harness.commands import following, removed, reported
from tests.harness.feed import AGENT, TOPICS, Feed, page
from tests.harness.postgres import Databases, end_sessions, waiting_for_locks
from tests.harness.subscriber import Worker, assert_is_the_fold, content_of, rows_of
from tests.harness.waiting import eventually
from tests.integration.subscriber.conftest import Workers
from tests.integration.subscriber.running import create_anew


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


def test_one_that_becomes_editable_for_as_long_passes_a_package(
    feed: Feed, workers: Workers
) -> None:
    policy, clock = RetryPolicy(-1, 900.0, 900.0), ManualClock()
    before = workers(editable=False, policy=policy, clock=clock)
    feed.add(page("/a"))
    before.run()
    bad = feed.bad()
    before.step_until_failed(1)
    before.die()
    editable = workers(policy=policy, clock=clock)
    with following(editable) as follower:
        feed.clear(editable.name, bad, "c1")
        follower.catch_up()
        editable.run()
        assert removed(editable, feed) == [(bad, "c1")]
        editable.die()
    after = workers(editable=False)
    feed.add(page("/b"))
    after.run()
    after.send_statuses()
    told = [(status.offset, status.status) for status in feed.statuses()]
    assert told == [(bad, Status.REMOVED)], "what came before still counts as imported"
    assert after.report.state.started_offset == -1
    assert_is_the_fold(after.url, feed, removed=[bad])


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
    assert rows_of(worker.url, "SELECT detail -> 'up_to' FROM bookkeeping.audit") == [(here,)]
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
    covering: list[PendingClear | None] = []

    def catch_up_and_look() -> None:
        with following(second):
            journal_id = feed.journal.identity(TOPICS.package)
            covering.append(second.clears.covering(AGENT, journal_id, bad))

    looking = threading.Thread(target=catch_up_and_look)
    with psycopg.connect(second.url) as other:
        other.execute("LOCK TABLE bookkeeping.clear_command")
        looking.start()
        eventually(lambda: waiting_for_locks(second.url), "the follower's first look at the table")
        looking.join(0.5)
        assert covering == []
    looking.join(120)
    assert [found and found.command_id for found in covering] == ["c1"]


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
    copy = workers(url=databases.copy(source.url), name="copy")
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


def test_r24_a_clear_of_a_log_that_was_created_anew_is_given_up(feed: Feed, worker: Worker) -> None:
    with following(worker) as follower:
        command_id = feed.clear(worker.name, feed.add(page("/a")))
        follower.catch_up()
    create_anew(feed)
    with following(worker):
        pass
    why = "the journal was created anew"
    assert reported(worker, feed, command_id)[-1] == (CommandState.REJECTED, 0, why)


def test_r14_an_unreadable_command_is_passed_over(feed: Feed, worker: Worker) -> None:
    with following(worker) as follower:
        first = feed.add(page("/a"))
        feed.journal.append(TOPICS.command, Outgoing(b"\xff\xff", {}, worker.name)).result(120)
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
        with borrowed(worker.url) as connection:
            end_sessions(connection, "packhorse-subscriber")
        first = feed.add(page("/a"))
        feed.clear(worker.name, first)
        follower.catch_up()
        worker.run()
    assert [offset for offset, _ in removed(worker, feed)] == [first]
