"""Start policy `snapshot` (R13): a database is filled by a snapshot, and goes on from there."""

import pytest

from packhorse.snapshots.snapshot import ReportedState
from packhorse.wire.messages import Status, SubscriptionState
from tests.harness.feed import TOPICS, Feed, page
from tests.harness.snapshots import snapshot_of
from tests.harness.subscriber import (
    content_of,
    position_of,
    rows_of,
)
from tests.harness.waiting import eventually
from tests.integration.subscriber.running import gap, hash_of, imported, running, subscription
from tests.integration.subscriber.snapshots.histories import Complete, joining, some_history


@pytest.mark.parametrize("editable", [True, False])
def test_r13_a_new_subscriber_begins_with_a_snapshot_and_imports_what_follows(
    feed: Feed, database_url: str, complete: Complete, editable: bool
) -> None:
    offset = some_history(feed)
    other = complete()
    other.run()
    snapshot = snapshot_of(other.url, feed)
    feed.journal.truncate(TOPICS.package, offset + 1)
    with joining(feed, database_url, editable=editable) as subscriber:
        imported(subscriber, offset)
        assert hash_of(database_url) == hash_of(other.url)
        assert position_of(database_url).package_id == snapshot.package_id
        assert subscription(subscriber).started_offset == offset
        last = feed.add(page("/after"))
        imported(subscriber, last)
        eventually(lambda: subscription(subscriber).state is SubscriptionState.IDLE, "it goes on")
        eventually(lambda: subscription(subscriber).settled_offset == last, "all is reported")
    other.run()
    assert hash_of(database_url) == hash_of(other.url)
    reported = [status.offset for status in feed.statuses()]
    assert reported == ([last] if editable else [])


def test_without_a_snapshot_it_waits_until_there_is_one(
    feed: Feed, database_url: str, complete: Complete
) -> None:
    offset = some_history(feed)
    other = complete()
    other.run()
    with joining(feed, database_url) as subscriber:
        gap(subscriber, "packhorse pipeline snapshot")
        eventually(
            lambda: (
                SubscriptionState.GAP
                in {reported.states[0].state for reported in feed.announcements()}
            ),
            "it is reported",
        )
        assert content_of(database_url) == {}
        snapshot_of(other.url, feed)
        imported(subscriber, offset)
    assert hash_of(database_url) == hash_of(other.url)


def test_r13_a_subscription_in_a_gap_goes_on_from_a_snapshot(
    feed: Feed, database_url: str, complete: Complete
) -> None:
    with running(feed, database_url) as first:
        imported(first, feed.add(page("/gone"), page("/gone/below"), deep=["/gone"]))
    feed.delete("/gone")
    offset = some_history(feed)
    other = complete()
    other.run()
    feed.journal.truncate(TOPICS.package, offset - 1)
    with joining(feed, database_url) as subscriber:
        gap(subscriber, f"at offset {offset - 2} or later")
        assert "1 is to be imported next" in subscription(subscriber).last_error
        assert set(content_of(database_url)) == {"/gone", "/gone/below"}
        snapshot_of(other.url, feed)
        imported(subscriber, feed.add(page("/after")))
    other.run()
    assert hash_of(database_url) == hash_of(other.url)
    assert subscription(subscriber).started_offset == offset


def test_r13_other_policies_stay_in_the_gap(
    feed: Feed, database_url: str, complete: Complete
) -> None:
    with running(feed, database_url) as first:
        imported(first, feed.add(page("/a")))
    offset = some_history(feed)
    other = complete()
    other.run()
    snapshot_of(other.url, feed)
    feed.journal.truncate(TOPICS.package, offset)
    with running(feed, database_url) as subscriber:
        gap(subscriber, "fill this database from a snapshot")
    assert set(content_of(database_url)) == {"/a"}


def test_r27_a_repeat_of_what_the_snapshot_holds_is_passed(
    feed: Feed, database_url: str, complete: Complete
) -> None:
    feed.producer = "author"
    feed.add(page("/a", 1))
    feed.add(page("/a", 2))
    other = complete()
    other.run()
    snapshot_of(other.url, feed)
    records = feed.records()
    feed.again(records[0])
    with joining(feed, database_url) as subscriber:
        imported(subscriber, feed.add(page("/b")))
    other.run()
    assert hash_of(database_url) == hash_of(other.url)
    assert content_of(database_url)["/a"][1] == {"version": 2}


def test_a_repeat_without_a_number_is_passed_where_ids_are_kept(
    feed: Feed, database_url: str, complete: Complete
) -> None:
    feed.add(page("/a", 1))
    feed.add(page("/a", 2))
    other = complete()
    other.run()
    snapshot_of(other.url, feed)
    feed.again(feed.records()[0])
    with joining(feed, database_url, remember_packages_h=1.0) as subscriber:
        imported(subscriber, feed.add(page("/b")))
    assert content_of(database_url)["/a"][1] == {"version": 2}


def test_r14_import_roots_hold_for_a_snapshot_too(
    feed: Feed, database_url: str, complete: Complete
) -> None:
    with running(feed, database_url) as first:
        imported(first, feed.add(page("/site/b/gone"), page("/elsewhere/kept")))
    feed.delete("/site/b/gone")
    feed.add(page("/elsewhere/new"), page("/site", 7))
    offset = feed.add(page("/site/b/new"), page("/site/bb"), page("/site/b"))
    other = complete()
    other.run()
    snapshot_of(other.url, feed)
    feed.journal.truncate(TOPICS.package, offset)
    with joining(feed, database_url, import_roots=("/site/b", "/site/c")) as subscriber:
        imported(subscriber, offset)
    content = content_of(database_url)
    assert set(content) == {"/site", "/site/b", "/site/b/new", "/elsewhere", "/elsewhere/kept"}
    assert content["/site"][0] == "folder"


def test_a_part_of_a_tree_brings_the_folders_above(
    feed: Feed, database_url: str, complete: Complete
) -> None:
    feed.add(page("/site", 7), page("/site/b/new"))
    other = complete()
    other.run()
    snapshot_of(other.url, feed)
    with joining(feed, database_url, import_roots=("/site/b",)) as subscriber:
        imported(subscriber, 0)
    content = content_of(database_url)
    assert {path: node[0] for path, node in content.items()} == {
        "/site": "folder",
        "/site/b": "folder",
        "/site/b/new": "page",
    }


def test_what_was_removed_here_comes_back_with_no_snapshot_but_an_own_one(
    feed: Feed, database_url: str, complete: Complete
) -> None:
    options = {"max_retries": 0, "editable": True}
    with running(feed, database_url, **options) as first:
        imported(first, feed.add(page("/a")))
        removed = feed.bad("/bad")
        eventually(lambda: Status.REMOVED_FAILED in {s.status for s in feed.statuses()}, "given up")
        imported(first, feed.add(page("/b")))
    other = complete()
    last = some_history(feed)
    other.clear(removed)
    other.run()
    feed.journal.truncate(TOPICS.package, last)
    snapshot_of(other.url, feed)
    ((decided_ms,),) = rows_of(
        database_url,
        "SELECT (extract(epoch FROM decided_at) * 1000)::bigint FROM bookkeeping.status "
        "WHERE status <> 'IMPORTED'",
    )
    snapshot_of(
        other.url, feed, subscriber="sub", told=(ReportedState("main", last, decided_ms - 1),)
    )
    with joining(feed, database_url, **options) as subscriber:
        gap(subscriber, "packhorse pipeline snapshot --agent main --subscriber sub")
        assert set(content_of(database_url)) == {"/a", "/b"}
        snapshot_of(
            other.url, feed, subscriber="sub", told=(ReportedState("main", -1, decided_ms),)
        )
        imported(subscriber, last)
    assert hash_of(database_url) == hash_of(other.url)
