"""A snapshot that is not this journal's, or is damaged, changes nothing (R24, R30)."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from packhorse.packages.compression import compress
from packhorse.packages.format import write_nodes
from packhorse.snapshots.parts import read_part
from packhorse.snapshots.snapshot import MANIFESTS, ContentSnapshot
from packhorse.snapshots.store import publish
from tests.harness.feed import TOPICS, Feed, bad_page, page
from tests.harness.snapshots import a_snapshot, snapshot_of, write_parts
from tests.harness.subscriber import content_of, position_of, rows_of
from tests.integration.subscriber.running import create_anew, gap, hash_of, imported, running
from tests.integration.subscriber.snapshots.histories import Complete, joining, some_history


def test_r24_a_snapshot_of_a_journal_that_was_created_anew_is_not_used(
    feed: Feed, database_url: str, complete: Complete
) -> None:
    some_history(feed)
    other = complete()
    other.run()
    snapshot_of(other.url, feed)
    create_anew(feed)
    some_history(feed)
    with joining(feed, database_url) as subscriber:
        gap(subscriber, "make one")
    assert content_of(database_url) == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"package_id": "another package"},
        {"offset": 10_000},
        {"publisher_agents": ("main", "bulk")},
        {"subscriber": "other"},
    ],
    ids=str,
)
def test_r24_a_snapshot_that_the_journal_does_not_continue_is_not_used(
    feed: Feed, database_url: str, complete: Complete, fields: dict[str, Any]
) -> None:
    some_history(feed)
    other = complete()
    other.run()
    snapshot_of(other.url, feed, **fields)
    with joining(feed, database_url) as subscriber:
        gap(subscriber, "it needs a snapshot of main at offset 0 or later; make one")
    assert rows_of(database_url, "SELECT FROM bookkeeping.position") == []


def lose_a_part(feed: Feed, snapshot: ContentSnapshot) -> None:
    feed.blobs.delete(snapshot.parts[-1].key)


def spoil_a_part(feed: Feed, snapshot: ContentSnapshot) -> None:
    """Replace the last part by one of the same nodes but one."""
    part = snapshot.parts[-1]
    nodes = list(read_part(part, feed.blobs))
    feed.blobs.delete(part.key)
    changed = [dataclasses.replace(nodes[0], type="other"), *nodes[1:]]
    feed.blobs.put(part.key, [compress(b"".join(write_nodes(changed)))])


def cut_a_part(feed: Feed, snapshot: ContentSnapshot) -> None:
    part = snapshot.parts[-1]
    data = b"".join(feed.blobs.get(part.key))
    feed.blobs.delete(part.key)
    feed.blobs.put(part.key, [data[:-3]])


@pytest.mark.parametrize("damage", [lose_a_part, spoil_a_part, cut_a_part])
def test_r30_a_damaged_snapshot_changes_nothing_and_another_one_serves(
    feed: Feed,
    database_url: str,
    complete: Complete,
    damage: Callable[[Feed, ContentSnapshot], None],
) -> None:
    with running(feed, database_url) as first:
        imported(first, feed.add(page("/kept")))
    some_history(feed)
    other = complete()
    other.run()
    offset = position_of(other.url).offset
    feed.journal.truncate(TOPICS.package, offset)
    damage(feed, snapshot_of(other.url, feed))
    with joining(feed, database_url) as subscriber:
        gap(subscriber, f"the snapshot at offset {offset} can't be loaded")
        assert set(content_of(database_url)) == {"/kept"}
        assert position_of(database_url).offset == 0
        snapshot_of(other.url, feed)
        imported(subscriber, offset)
    assert hash_of(database_url) == hash_of(other.url)


def test_r30_nodes_that_no_database_holds_change_nothing(feed: Feed, database_url: str) -> None:
    feed.add(page("/a"))
    snapshot_id = "0" * 16
    parts = write_parts([page("/a"), page("/b"), bad_page("/c")], feed.blobs, snapshot_id)
    journal_id = feed.journal.identity(TOPICS.package)
    publish(a_snapshot(parts, snapshot_id, journal_id=journal_id), feed.blobs)
    feed.blobs.put(MANIFESTS + "9" * 20 + "-" + "1" * 16, [b'{"format": 1}'])
    with joining(feed, database_url) as subscriber:
        gap(subscriber, "ck_node_properties")
    assert content_of(database_url) == {}
    assert rows_of(database_url, "SELECT FROM bookkeeping.position") == []
