"""Which snapshot a database may take: what it, and its golden subscriber, removed stays away."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest

from packhorse.snapshots.snapshot import ContentSnapshot, ReportedState
from packhorse_services.subscriber.announce.announcer import Identity
from packhorse_services.subscriber.announce.statuses import StatusSender
from packhorse_services.subscriber.snapshots.choice import NoSnapshot, choose, wanted
from tests.harness.feed import TOPICS, Feed, page
from tests.harness.postgres import Databases
from tests.harness.snapshots import snapshot_of
from tests.harness.subscriber import Worker, rows_of
from tests.integration.subscriber.conftest import Workers, empty

Choose = Callable[..., ContentSnapshot]


@pytest.fixture(scope="module")
def complete_database(databases: Databases) -> str:
    return databases.new("complete")


@pytest.fixture
def complete(workers: Workers, complete_database: str, feed: Feed) -> Worker:
    """A subscriber that has imported everything, ten packages."""
    empty(complete_database)
    worker = workers(complete_database, name="complete")
    for number in range(10):
        feed.add(page(f"/n{number}"))
    worker.run()
    return worker


@pytest.fixture
def chosen(feed: Feed, database_url: str) -> Choose:
    def choice(wait_for: str | None = None) -> ContentSnapshot:
        with closing(psycopg.connect(database_url)) as connection:
            wish = wanted(
                *(connection, feed.journal, TOPICS.package, ["main"]),
                subscriber="sub",
                wait_for=wait_for,
            )
        return choose(feed.blobs, feed.journal, TOPICS.package, wish, {})

    return choice


def remembered(url: str, feed: Feed, offset: int, status: str, by: str = "sub") -> None:
    """Write down what was decided, eight days ago."""
    with psycopg.connect(url) as connection:
        connection.execute(
            "INSERT INTO bookkeeping.status (publisher_agent, journal_id, subscriber, log_offset, "
            "package_id, status, attempts, reason, command_id, decided_at) "
            "VALUES ('main', %s, %s, %s, '', %s, 0, '', '', to_timestamp(1700000000.123))",
            (feed.journal.identity(TOPICS.package), by, offset, status),
        )


def test_r13_who_waits_takes_only_what_the_golden_one_has_decided_to_the_end(
    feed: Feed, complete: Worker, chosen: Choose
) -> None:
    def made(**fields: Any) -> ContentSnapshot:
        return snapshot_of(complete.url, feed, **fields)

    made()
    made(subscriber="sub")
    made(subscriber="golden", told=())
    made(subscriber="golden", told=(ReportedState("main", 8, 0),))
    made(subscriber="golden", told=(ReportedState("other", 9, 0),))
    with pytest.raises(NoSnapshot, match=r"decided by golden .* archive && .* --subscriber golden"):
        chosen("golden")
    decided = made(subscriber="golden", told=(ReportedState("main", 9, 0),))
    assert chosen("golden") == decided


def test_one_that_was_made_for_the_subscriber_goes_before_newer_ones_for_everybody(
    feed: Feed, complete: Worker, chosen: Choose
) -> None:
    own = snapshot_of(complete.url, feed, subscriber="sub")
    feed.add(page("/later"))
    complete.run()
    newer = snapshot_of(complete.url, feed)
    assert newer.offset > own.offset
    assert chosen() == own


def test_who_waits_and_has_removed_something_of_its_own_takes_none(
    feed: Feed, database_url: str, complete: Worker, chosen: Choose
) -> None:
    golden = snapshot_of(complete.url, feed, subscriber="golden")
    remembered(database_url, feed, 3, "SKIPPED")
    assert chosen("golden") == golden
    remembered(database_url, feed, 4, "REMOVED")
    with pytest.raises(NoSnapshot, match="what sub removed at 4, and what golden removed"):
        chosen("golden")


def test_a_removal_must_have_been_heard_of_whenever_the_snapshot_was_made(
    feed: Feed, database_url: str, complete: Worker, chosen: Choose
) -> None:
    remembered(database_url, feed, 3, "SKIPPED")
    late = {"subscriber": "sub", "made_ms": 4_000_000_000_000}
    snapshot_of(complete.url, feed, **late, told=(ReportedState("main", 9, 1_700_000_000_122),))
    snapshot_of(complete.url, feed, **late, told=(ReportedState("other", 9, 1_700_000_000_123),))
    with pytest.raises(NoSnapshot, match="knows of the last removal here"):
        chosen()
    heard = snapshot_of(
        complete.url, feed, subscriber="sub", told=(ReportedState("main", -1, 1_700_000_000_123),)
    )
    assert chosen() == heard


def test_r12_no_snapshot_has_what_another_one_removed_before_the_copy(
    feed: Feed, database_url: str, complete: Worker, chosen: Choose
) -> None:
    snapshot_of(complete.url, feed)
    snapshot_of(complete.url, feed, subscriber="sub")
    remembered(database_url, feed, 3, "REMOVED", by="source")
    with pytest.raises(NoSnapshot, match="what source removed at 3; begin with an empty database"):
        chosen()


def test_the_newest_removal_of_each_kind_is_never_forgotten(
    feed: Feed, database_url: str, workers: Workers
) -> None:
    worker = workers()
    for offset in range(7):
        feed.add(page(f"/n{offset}"))
    worker.run()
    with psycopg.connect(database_url) as connection:
        connection.execute("DELETE FROM bookkeeping.status")
        connection.execute("DELETE FROM bookkeeping.status_mark")
    for offset, status in enumerate(("REMOVED", "REMOVED", "IMPORTED", "SKIPPED")):
        remembered(database_url, feed, offset, status)
    remembered(database_url, feed, 4, "REMOVED", by="source")
    sender = StatusSender(
        lambda: psycopg.connect(database_url, autocommit=True),
        feed.journal,
        TOPICS.status,
        Identity("sub", "one"),
        may_send=lambda: True,
    )
    sender.send()
    sender.stop(1)
    kept = rows_of(database_url, "SELECT log_offset FROM bookkeeping.status ORDER BY log_offset")
    assert kept == [(1,), (3,), (4,)]
