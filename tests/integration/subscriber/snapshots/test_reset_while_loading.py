"""A reset to before the snapshot that was loaded: then that is not what the content began with."""

from contextlib import closing

import psycopg
import pytest

from packhorse.wire.messages import CommandState
from packhorse_services.subscriber.snapshots.load import Load, load
from tests.harness.commands import following, reset
from tests.harness.feed import Feed, page
from tests.harness.snapshots import snapshot_of
from tests.harness.subscriber import Worker, assert_is_the_fold, position_of, rows_of
from tests.integration.subscriber.snapshots.histories import Complete


def loaded(feed: Feed, worker: Worker, other: Worker) -> str:
    """Let a worker that has the lease begin with what another one holds; return the id."""
    epoch = worker.lease.epoch()
    assert epoch is not None
    snapshot = snapshot_of(other.url, feed)
    work = Load("sub", snapshot, ("/",), {}, lambda _: None)
    with closing(psycopg.connect(worker.url, autocommit=True)) as connection:
        worker.lease.adopt(load(connection, feed.blobs, work, epoch))
    return snapshot.id


@pytest.mark.parametrize(("offset", "known"), [(1, False), (3, True), (4, True)])
def test_r25_the_snapshot_is_forgotten_once_the_subscription_is_back_before_it(
    feed: Feed, worker: Worker, complete: Complete, offset: int, known: bool
) -> None:
    for number in range(4):
        feed.add(page(f"/n{number}", number))
    other = complete()
    other.run()
    with following(worker) as follower:
        snapshot_id = loaded(feed, worker, other)
        last = feed.add(page("/n4"))
        worker.run()
        assert reset(follower, feed, offset)[0] is CommandState.APPLIED
        worker.run()
    assert_is_the_fold(worker.url, feed)
    assert position_of(worker.url).offset == last
    found = rows_of(worker.url, "SELECT snapshot_id FROM bookkeeping.joined_snapshot")
    assert found == ([(snapshot_id,)] if known else [])
