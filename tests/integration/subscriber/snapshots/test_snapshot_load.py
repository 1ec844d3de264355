"""What a load does beside the content: commands that came too late, listeners, an early end."""

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from packhorse.blobs.api import BlobMissing
from packhorse.db import rows
from packhorse.db.connect import connect
from packhorse.packages.apply import INVALIDATE_CHANNEL
from packhorse.packages.limits import PackageCorrupt
from packhorse.packages.path_filter import PathFilter
from packhorse.snapshots.parts import Change, EncodedNode, write_changes
from packhorse.snapshots.snapshot import left_out, new_id, part_key
from packhorse.wire.messages import CommandState
from packhorse_services.subscriber.snapshots import load as loading
from packhorse_services.subscriber.snapshots.load import Load, load
from tests.harness.feed import TOPICS, Feed, page
from tests.harness.snapshots import snapshot_of
from tests.harness.subscriber import content_of, rows_of
from tests.harness.waiting import eventually
from tests.integration.subscriber.running import gap, hash_of, heard_at_each, imported, running
from tests.integration.subscriber.snapshots.histories import Complete


def ended(feed: Feed, command_id: str) -> list[tuple[CommandState, int, str]]:
    return [
        (one.state, one.removed, one.reason)
        for one in feed.command_statuses()
        if one.command_id == command_id and one.state is not CommandState.SEEN
    ]


def pending(url: str) -> list[tuple[Any, ...]]:
    return rows_of(url, "SELECT up_to FROM bookkeeping.clear_command ORDER BY up_to")


def test_r19_a_clear_that_a_load_overtakes_is_rejected(
    feed: Feed, database_url: str, complete: Complete
) -> None:
    with running(feed, database_url) as first:
        imported(first, feed.add(page("/a")))
    last = [feed.add(page(f"/n{number}")) for number in range(5)][-1]
    other = complete()
    other.run()
    feed.journal.truncate(TOPICS.package, last)
    with running(feed, database_url, start="snapshot") as subscriber:
        gap(subscriber, "make one")
        feed.add(page("/late"))
        early, late = feed.clear("sub", last), feed.clear("sub", last + 1)
        eventually(lambda: len(pending(database_url)) == 2, "both are seen")
        snapshot_of(other.url, feed)
        imported(subscriber, last)
        eventually(lambda: ended(feed, early) != [], "the early one has ended")
        imported(subscriber, last + 1)
        eventually(lambda: ended(feed, late) != [], "the late one has ended")
    reason = f"a snapshot at offset {last} was loaded before it was done"
    assert ended(feed, early) == [(CommandState.REJECTED, 0, reason)]
    assert ended(feed, late) == [(CommandState.APPLIED, 1, "")]
    assert hash_of(database_url) == hash_of(other.url)


@pytest.fixture
def loaded(feed: Feed, database_url: str, complete: Complete) -> Callable[..., Load]:
    """Makes a load for a database that holds other content, with this `progress`."""
    with running(feed, database_url) as first:
        imported(first, feed.add(page("/a"), *[page(f"/a/n{number}") for number in range(9)]))
    feed.delete("/a")
    feed.add(page("/b"), page("/c"))
    other = complete()
    other.run()
    snapshot = snapshot_of(other.url, feed)
    return lambda progress: Load("sub", snapshot, ("/",), {}, progress)


def joined(url: str) -> list[tuple[Any, ...]]:
    columns = "snapshot_id, log_offset, journal_id, publisher_agents, subscriber, left_out"
    return rows_of(url, f"SELECT {columns} FROM bookkeeping.joined_snapshot")


def epoch_of(url: str) -> int:
    ((epoch,),) = rows_of(url, "SELECT epoch FROM bookkeeping.lease")
    return int(epoch)


def test_who_listens_for_invalidations_hears_of_the_roots(
    feed: Feed, database_url: str, loaded: Callable[..., Load]
) -> None:
    work = loaded(lambda _: None)
    with psycopg.connect(database_url, autocommit=True) as listener:
        listener.execute(f"LISTEN {INVALIDATE_CHANNEL}")
        with psycopg.connect(database_url, autocommit=True) as connection:
            load(connection, feed.blobs, work, epoch_of(database_url))
        (heard,) = listener.notifies(timeout=120, stop_after=1)
    assert json.loads(heard.payload) == {"package_id": work.snapshot.package_id, "paths": ["/"]}


def test_a_load_waits_for_locks_as_long_as_its_session_may(
    feed: Feed, database_url: str, loaded: Callable[..., Load], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits, record = list[Any](), loading._record

    def looked(connection: psycopg.Connection, work: Load) -> None:
        limits.append(connection.execute("SHOW lock_timeout").fetchone())
        record(connection, work)

    work = loaded(lambda _: None)
    monkeypatch.setattr(loading, "_record", looked)
    with connect(database_url, "tests", autocommit=True) as connection:
        limits.append(connection.execute("SHOW lock_timeout").fetchone())
        load(connection, feed.blobs, work, epoch_of(database_url))
    assert limits == [("10s",)] * 2


@pytest.mark.parametrize("step", range(6))
def test_a_load_can_be_given_up_between_parts_and_between_deletions(
    feed: Feed,
    database_url: str,
    loaded: Callable[..., Load],
    step: int,
) -> None:
    before = content_of(database_url)
    reported: list[int] = []

    def progress(read: int) -> None:
        reported.append(read)
        if len(reported) > step:
            raise InterruptedError

    with psycopg.connect(database_url, autocommit=True) as connection:
        work = dataclasses.replace(loaded(progress), delete_nodes=3)  # of ten: four statements
        with pytest.raises(InterruptedError):
            load(connection, feed.blobs, work, epoch_of(database_url))
        assert content_of(database_url) == before
        assert joined(database_url) == []
        quiet = Load(work.subscriber, work.snapshot, work.roots, {}, lambda _: None)
        load(connection, feed.blobs, quiet, epoch_of(database_url))
    assert set(content_of(database_url)) == {"/b", "/c"}
    assert [one[0] for one in joined(database_url)] == [work.snapshot.id]


def test_who_reads_what_is_left_out_is_not_idle_to_the_server(
    feed: Feed, database_url: str, loaded: Callable[..., Load], monkeypatch: pytest.MonkeyPatch
) -> None:
    work = dataclasses.replace(loaded(lambda _: None), path_filter=PathFilter(("/other",)))
    monkeypatch.setattr(rows, "_UNHEARD_S", 0.0)
    with psycopg.connect(database_url, autocommit=True) as connection:
        pid, heard = connection.info.backend_pid, list[Any]()
        watched = heard_at_each(loading.read_part, database_url, pid, heard)
        monkeypatch.setattr(loading, "read_part", watched)
        load(connection, feed.blobs, work, epoch_of(database_url))
    assert len({*heard}) == len(heard) == 2


def test_r8_a_part_is_loaded_with_its_changes(
    feed: Feed, database_url: str, loaded: Callable[..., Load]
) -> None:
    before, work = content_of(database_url), loaded(lambda _: None)
    (part,) = work.snapshot.parts
    now = (Change("/b", None), Change("/d", EncodedNode.of(page("/d", 7))))
    part = write_changes(part, now, 2, part_key(work.snapshot.id, 1), feed.blobs)
    snapshot = dataclasses.replace(work.snapshot, parts=(part,))
    work = dataclasses.replace(work, snapshot=snapshot)
    broken = dataclasses.replace(part, changes=dataclasses.replace(part.changes, nodes=3))
    lost = dataclasses.replace(
        part, changes=dataclasses.replace(part.changes, key=part_key(work.snapshot.id, 2))
    )
    with psycopg.connect(database_url, autocommit=True) as connection:
        for other, error in ((broken, PackageCorrupt), (lost, BlobMissing)):
            wrong = dataclasses.replace(
                work, snapshot=dataclasses.replace(snapshot, parts=(other,))
            )
            with pytest.raises(error):
                load(connection, feed.blobs, wrong, epoch_of(database_url))
            assert content_of(database_url) == before
        load(connection, feed.blobs, work, epoch_of(database_url))
    content = content_of(database_url)
    assert set(content) == {"/c", "/d"}
    assert content["/d"][1] == {"version": 7}


def test_a_database_says_which_snapshot_it_loaded_last(
    feed: Feed, database_url: str, loaded: Callable[..., Load]
) -> None:
    first = loaded(lambda _: None)
    lacking = dataclasses.replace(
        first.snapshot, id=new_id(), subscriber="golden", left_out=left_out([1])
    )
    with psycopg.connect(database_url, autocommit=True) as connection:
        for snapshot in (first.snapshot, lacking):
            work = dataclasses.replace(first, snapshot=snapshot)
            load(connection, feed.blobs, work, epoch_of(database_url))
            place = (snapshot.offset, feed.journal.identity(TOPICS.package))
            agents, whose = [*snapshot.publisher_agents], snapshot.subscriber
            reported = (snapshot.id, *place, agents, whose, snapshot.left_out)
            assert joined(database_url) == [reported]
