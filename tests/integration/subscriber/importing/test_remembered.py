"""Ids of packages: one under two numbers is dealt with once, while it is known."""

from dataclasses import replace

import psycopg
import pytest

from packhorse.wire.messages import Action, PackageEntry, PackageMessage, Status
from packhorse_services.subscriber.announce.statuses import Decision, record_statuses
from packhorse_services.subscriber.importing.attempts import RetryPolicy
from packhorse_services.subscriber.importing.context import GroupLimits
from packhorse_services.subscriber.importing.remembered import PackageMemory, SubscriberHousekeeping
from packhorse_services.subscriber.journal.arrivals import Mark
from packhorse_services.subscriber.journal.grouping import Group
from packhorse_services.subscriber.journal.position import Position
from packhorse_services.subscriber.journal.sequences import HighWater
from tests.harness.feed import TOPICS, Feed, page
from tests.harness.jobs.events import bookkeeper, emit_all
from tests.harness.subscriber import Worker, content_of, position_of, rows_of
from tests.harness.waiting import eventually
from tests.integration.subscriber.conftest import Workers
from tests.integration.subscriber.running import imported, running

REMEMBERED = "SELECT package_id FROM bookkeeping.applied_package ORDER BY applied_at"


def twice(feed: Feed, path: str) -> tuple[int, int]:
    """Append a package, a newer one of the same path, and the first again; returns the repeat."""
    feed.producer = "author"
    message = feed.message(Action.ADD, [path], (), [page(path, 1)])
    first = feed.append(message)
    feed.add(page(path, 2))
    return first, feed.append(feed.renumbered(message))


@pytest.mark.parametrize(("packages", "editable"), [(1, True), (100, True), (1, False)])
def test_r27_a_package_under_two_numbers_is_imported_once(
    feed: Feed, workers: Workers, packages: int, editable: bool
) -> None:
    limits = GroupLimits(packages, passed_s=0)
    worker = workers(remember_h=1.0, limits=limits, editable=editable)
    worker.run()
    first, repeat = twice(feed, "/a")
    worker.run()
    assert position_of(worker.url).offset == repeat
    assert content_of(worker.url)["/a"][1] == {"version": 2}
    worker.send_statuses()
    reported = [status.offset for status in feed.statuses()]
    assert reported == ([first, first + 1] if editable else [])


def test_without_memory_the_number_decides_and_nothing_is_stored(
    feed: Feed, worker: Worker
) -> None:
    twice(feed, "/a")
    worker.run()
    assert content_of(worker.url)["/a"][1] == {"version": 1}
    assert rows_of(worker.url, REMEMBERED) == []


def test_r31_what_is_remembered_is_no_duplicate_though_its_first_has_left_the_log(
    feed: Feed, workers: Workers
) -> None:
    message = feed.message(Action.ADD, ["/a"], (), [page("/a")])
    before, after = workers(remember_h=1.0), workers(remember_h=1.0)
    feed.append(message)
    before.run()
    before.die()
    feed.journal.truncate(TOPICS.package, 1)
    feed.append(message)
    after.run()
    after.send_statuses()
    assert [status.status for status in feed.statuses()] == [Status.IMPORTED]


def test_r27_what_was_removed_is_remembered_and_does_not_overwrite_what_is_newer(
    feed: Feed, workers: Workers
) -> None:
    worker = workers(remember_h=1.0)
    message = feed.message(Action.ADD, ["/a"], (), [page("/a", 1)])
    first = feed.append(message)
    worker.clear(first)
    worker.run()
    newer = feed.add(page("/a", 2))
    feed.append(message)
    worker.run()
    assert content_of(worker.url)["/a"][1] == {"version": 2}
    worker.send_statuses()
    assert [(status.offset, status.status) for status in feed.statuses()] == [
        (first, Status.REMOVED),
        (newer, Status.IMPORTED),
        (newer + 1, Status.DUPLICATE),
    ]


@pytest.mark.parametrize("editable", [True, False])
def test_r27_what_was_given_up_is_remembered(feed: Feed, workers: Workers, editable: bool) -> None:
    """The first copy failed, as its path lies outside the roots; by the second it would not."""
    message = feed.message(Action.ADD, ["/a"], (), [page("/a", 1)])
    feed.append(message)
    narrow = workers(
        remember_h=1.0, policy=RetryPolicy(0, 0.0, 0.0), roots=("/b",), editable=editable
    )
    narrow.run()
    narrow.die()
    worker = workers(remember_h=1.0, editable=editable)
    feed.add(page("/a", 2))
    feed.append(message)
    worker.run()
    assert content_of(worker.url)["/a"][1] == {"version": 2}


def test_packages_without_an_id_are_all_new(feed: Feed, workers: Workers) -> None:
    worker = workers(remember_h=1.0)
    for version in (1, 2):
        message = feed.message(Action.ADD, ["/a"], (), [page("/a", version)])
        feed.append(replace(message, entry=replace(message.entry, package_id="")))
    worker.run()
    assert content_of(worker.url)["/a"][1] == {"version": 2}
    assert rows_of(worker.url, REMEMBERED) == []


@pytest.mark.parametrize("known", [(), ("a",)])
def test_r27_in_one_group_each_id_is_new_once_and_what_has_none_is_always_new(
    database_url: str, known: tuple[str, ...]
) -> None:
    marks = [Mark(offset, package_id) for offset, package_id in enumerate(["a", "b", "", "b", ""])]
    entry = PackageEntry("", "main", Action.TEST)
    group = Group((), [(mark, PackageMessage(entry)) for mark in marks], HighWater({}))
    memory = PackageMemory(1.0)
    with psycopg.connect(database_url) as connection:
        memory.store(connection, "main", known)
        found = memory.first_times(connection, "main", group)
    assert [mark.offset for mark, _ in found.fresh] == [0, 1, 2, 4][len(known) :]


def test_r31_what_is_remembered_was_imported_unless_a_status_may_be_gone_or_says_otherwise(
    database_url: str,
) -> None:
    memory, every = PackageMemory(24.0 * 30), ["imported", "removed", "old", "theirs"]
    with psycopg.connect(database_url) as connection:
        memory.store(connection, "main", every[:3])
        memory.store(connection, "other", ["removed", "theirs"])
        connection.execute(
            "UPDATE bookkeeping.applied_package SET applied_at = applied_at - interval '8 days' "
            "WHERE package_id = 'old'"
        )
        decided = [
            Decision(Mark(0, "imported"), Status.IMPORTED),
            Decision(Mark(1, "removed"), Status.REMOVED),
        ]
        record_statuses(connection, "sub", Position("main", "journal", 1, Mark(1, "")), decided)
        assert memory.imported(connection, "main", every) == ["imported"]
        assert set(memory.imported(connection, "other", every)) == {"removed", "theirs"}
        assert PackageMemory().imported(connection, "main", every) == []


def test_another_agents_package_of_the_same_id_is_another(feed: Feed, workers: Workers) -> None:
    message = feed.message(Action.ADD, ["/a"], (), [page("/a", 1)])
    feed.append(message)
    workers(remember_h=1.0).run()
    theirs = feed.message(Action.ADD, ["/b"], (), [page("/b", 1)], "other")
    feed.append(replace(theirs, entry=replace(theirs.entry, package_id=message.entry.package_id)))
    workers_other = workers(remember_h=1.0, agent="other")
    rows_of(workers_other.url, "UPDATE bookkeeping.lease SET expires_at = '-infinity' RETURNING 1")
    workers_other.run()
    assert set(content_of(workers_other.url)) == {"/a", "/b"}


def test_a_failed_import_remembers_nothing(feed: Feed, workers: Workers) -> None:
    worker = workers(remember_h=1.0, limits=GroupLimits(100, passed_s=0))
    worker.run()
    good = feed.add(page("/a"))
    feed.bad()
    worker.run(lambda: position_of(worker.url).offset == good)
    worker.step_until_failed(2)
    assert len(rows_of(worker.url, REMEMBERED)) == 1


def test_old_ids_are_forgotten_in_batches_by_the_databases_clock(
    database_url: str, workers: Workers
) -> None:
    rows_of(
        database_url,
        "INSERT INTO bookkeeping.applied_package SELECT 'main', 'p' || n, "
        "clock_timestamp() - interval '2 hours' FROM generate_series(1, 25000) AS n RETURNING 1",
    )
    rows_of(
        database_url,
        "INSERT INTO bookkeeping.applied_package VALUES "
        "('main', 'young', clock_timestamp() - interval '30 minutes') RETURNING 1",
    )
    forgetting = SubscriberHousekeeping(
        PackageMemory(1.0),
        workers(remember_h=1.0).connections.bookkeeper,
        may_remove=lambda: True,
        interval_s=3600.0,
    )
    forgetting.start()
    eventually(lambda: rows_of(database_url, REMEMBERED) == [("young",)], "only the young is left")
    forgetting.stop(60)


@pytest.mark.parametrize(("has_lease", "left"), [(True, 0), (False, 1)])
def test_old_events_are_removed_by_the_worker_with_the_lease(
    database_url: str, workers: Workers, has_lease: bool, left: int
) -> None:
    """Also where no ids are remembered."""
    forgetting = SubscriberHousekeeping(
        PackageMemory(), workers().connections.bookkeeper, may_remove=lambda: has_lease
    )
    with bookkeeper(database_url) as connection:
        connection.execute("DELETE FROM jobs.event; DELETE FROM jobs.event_horizon")
        emit_all(database_url, "old")
        connection.execute(
            "INSERT INTO jobs.event_horizon (taken_at) VALUES (now() - interval '1 hour')"
        )
    forgetting._round()
    assert rows_of(database_url, "SELECT count(*) FROM jobs.event") == [(left,)]


def test_a_worker_without_the_lease_forgets_nothing(database_url: str, workers: Workers) -> None:
    rows_of(
        database_url,
        "INSERT INTO bookkeeping.applied_package VALUES ('main', 'p', '-infinity') RETURNING 1",
    )
    forgetting = SubscriberHousekeeping(
        PackageMemory(1.0), workers().connections.bookkeeper, may_remove=lambda: False
    )
    forgetting._round()
    assert len(rows_of(database_url, REMEMBERED)) == 1


def test_the_program_remembers_across_restarts(feed: Feed, database_url: str) -> None:
    feed.producer = "author"
    message = feed.message(Action.ADD, ["/a"], (), [page("/a", 1)])
    for _ in range(3):
        feed.append(feed.renumbered(message))
        last = feed.add(page("/a", 2))
        with running(feed, database_url, remember_packages_h=24.0) as subscriber:
            imported(subscriber, last)
        assert content_of(database_url)["/a"][1] == {"version": 2}
    assert len(rows_of(database_url, REMEMBERED)) == 4
    assert len(feed.statuses()) == 4
