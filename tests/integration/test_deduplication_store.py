"""Snapshots of deduplication in a real database: whole, never backwards, kept by the bookkeeper."""

from collections.abc import Iterator

import psycopg
import pytest

from packhorse.db.pool import Lender
from packhorse.messaging.deduplication import (
    DeduplicationSnapshot,
    DeduplicationState,
    ProducerState,
)
from packhorse_services.publisher.outcomes.event_log import (
    DatabaseSnapshots,
    SnapshotsUnavailable,
)
from tests.harness.borrowing import pooled


@pytest.fixture
def pool(database_url: str) -> Iterator[Lender]:
    with pooled(database_url, "tests", 2) as pool:
        yield pool


def snapshot(
    position: int, sequence: int = 2**63 - 1, journal_id: str = "j"
) -> DeduplicationSnapshot:
    known = {"events/größe": ProducerState(2**62, sequence, 17), "idle": ProducerState(1, -1, 0)}
    return DeduplicationSnapshot(journal_id, position, DeduplicationState(known, watermark=5))


def test_what_was_saved_comes_back_the_same(pool: Lender) -> None:
    store = DatabaseSnapshots(pool)
    assert store.load("events/a") is None
    store.save("events/a", snapshot(10))
    store.save("events/b", snapshot(20, sequence=1))
    assert DatabaseSnapshots(pool).load("events/a") == snapshot(10)
    assert store.load("events/b") == snapshot(20, sequence=1)


def test_a_snapshot_never_goes_back_in_one_journal(pool: Lender) -> None:
    store = DatabaseSnapshots(pool)
    store.save("e", snapshot(10))
    store.save("e", snapshot(9, sequence=3))
    assert store.load("e") == snapshot(10)
    store.save("e", snapshot(10, sequence=4))
    assert store.load("e") == snapshot(10, sequence=4)
    store.save("e", snapshot(2, journal_id="another"))
    assert store.load("e") == snapshot(2, journal_id="another")


def test_r28_time_is_the_databases(pool: Lender, database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        query = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
        row = connection.execute(query).fetchone()
        assert row is not None
        before = row[0]
        now = DatabaseSnapshots(pool).now_ms()
        row = connection.execute(query).fetchone()
        assert row is not None
        assert before <= now <= row[0]


def test_a_database_that_says_no_is_transient_and_keeps_the_last(
    pool: Lender, database_url: str
) -> None:
    store = DatabaseSnapshots(pool)
    store.save("e", snapshot(10))
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("REVOKE UPDATE ON bookkeeping.deduplication_snapshot "
                           "FROM packhorse_bookkeeper")  # fmt: skip
        with pytest.raises(SnapshotsUnavailable):
            store.save("e", snapshot(11))
        connection.execute(
            "GRANT UPDATE ON bookkeeping.deduplication_snapshot TO packhorse_bookkeeper"
        )
    assert store.load("e") == snapshot(10)
