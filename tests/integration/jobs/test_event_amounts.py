"""Many events: bounded memory for who was away, and looks that cost the same however many."""

import tracemalloc
from collections.abc import Iterator

import pytest
from psycopg import Connection

from packhorse.jobs.event import Event
from packhorse.jobs.event_store import NewEvent, record
from packhorse.jobs.events.reading import position_now, read_page
from tests.harness.depth import at_depth
from tests.harness.jobs.events import Instance, bookkeeper

PENDING = at_depth(10_000, 2_000)
EVENT_BYTES = 10_000
MANY = 50_000


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with bookkeeper(database_url) as connection:
        yield connection


def _fill(connection: Connection, count: int, text: str = "") -> None:
    for _ in range(count // 1_000):
        record(connection, [NewEvent("t/x", "a", {"text": text})] * 1_000, hint=False)


def test_who_was_away_gets_thousands_in_bounded_memory(
    database_url: str, connection: Connection
) -> None:
    with Instance(database_url, "away").running():
        pass
    _fill(connection, PENDING, "x" * EVENT_BYTES)
    heard, tallest = 0, 0

    def count(_: Event) -> None:
        nonlocal heard, tallest
        heard += 1
        tallest = max(tallest, again.bus.handlers()[-1].waiting)

    again = Instance(database_url, "away")
    again.ear.cancel()
    again.bus.subscribe("t/*", count)
    tracemalloc.start()
    try:
        with again.running():
            peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert heard == PENDING
    assert tallest <= 200, "a page at a time"
    assert peak < 10_000_000, "all of them are 20 MB or more"


def test_a_look_reads_a_few_pages_of_the_table_whether_it_is_analyzed_or_not(
    connection: Connection,
) -> None:
    connection.execute("RESET ROLE")
    connection.execute("ALTER TABLE jobs.event SET (autovacuum_enabled = false)")
    connection.execute("SET ROLE packhorse_bookkeeper")
    start = position_now(connection)
    _fill(connection, MANY)
    now = position_now(connection)
    for _ in range(2):
        before = _pages_read(connection)
        for _ in range(20):
            assert not read_page(connection, now, reader="me").more
        assert (_pages_read(connection) - before) / 20 < 30
        assert len(read_page(connection, start, reader="me").events) == 200
        connection.execute("RESET ROLE")
        connection.execute("ANALYZE jobs.event")
        connection.execute("SET ROLE packhorse_bookkeeper")


def _pages_read(connection: Connection) -> int:
    """Return how many pages of the table and its indexes this session has looked at."""
    connection.execute("SELECT pg_stat_force_next_flush()")
    rows = connection.execute(
        """
        SELECT heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit
        FROM pg_statio_all_tables WHERE relid = 'jobs.event'::regclass
        """
    ).fetchall()
    return int(rows[0][0])
