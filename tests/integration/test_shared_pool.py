"""The one pool of a program: parts share connections, and none waits because of another."""

from collections.abc import Iterator

import psycopg
import pytest
from psycopg_pool import PoolTimeout

from packhorse.db.connect import connect
from packhorse.db.pool import Lender, SharedPool
from tests.harness.waiting import eventually

APPLICATION = "shared-pool-test"


@pytest.fixture
def pool(database_url: str) -> Iterator[SharedPool]:
    pool = SharedPool(database_url, APPLICATION, idle_s=0.2)
    pool.start()
    yield pool
    pool.stop(5.0)


def _server_pid(lender: Lender) -> int:
    with lender.connection() as connection:
        return _pid(connection)


def _pid(connection: psycopg.Connection) -> int:
    [(pid,)] = connection.execute("SELECT pg_backend_pid()").fetchall()
    return int(pid)


def _connections(url: str) -> int:
    with connect(url, "shared-pool-look") as connection:
        [(count,)] = connection.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE application_name = %s AND datname = current_database()",
            (APPLICATION,),
        ).fetchall()
    return int(count)


def test_what_one_part_gives_back_serves_the_next(database_url: str) -> None:
    pool = SharedPool(database_url, APPLICATION)
    one, other = pool.share(3), pool.share(3)
    try:
        assert len({_server_pid(part) for part in (one, other, one, other)}) == 1
    finally:
        pool.stop(5.0)


def test_a_part_with_all_of_its_share_in_use_keeps_no_other_waiting(pool: SharedPool) -> None:
    greedy, modest = pool.share(2), pool.share(1)
    with greedy.connection() as first, greedy.connection() as second:
        with pytest.raises(PoolTimeout), greedy.connection(0.05):
            pass
        assert _server_pid(modest) not in (_pid(first), _pid(second))
    assert _server_pid(greedy)


def test_a_share_is_given_back_after_an_error(pool: SharedPool) -> None:
    share = pool.share(1)
    for _ in range(2):
        with pytest.raises(psycopg.Error), share.connection() as connection:
            connection.execute("SELECT 1 / 0")


def test_what_is_idle_goes_back_to_the_server(pool: SharedPool, database_url: str) -> None:
    share = pool.share(2)
    with share.connection(), share.connection():
        assert _connections(database_url) == 2
    eventually(lambda: _connections(database_url) == 0, what="no connection is held")
