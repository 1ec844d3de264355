"""Limits on idle sessions end that of a paused process, also behind a pipeline."""

from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg import Connection

from packhorse.db.connect import connect
from packhorse.db.engine import Timeouts
from tests.harness.waiting import eventually

LIMITS = Timeouts(idle_in_transaction_ms=100)


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with connect(database_url, "idle-limits", timeouts=LIMITS, autocommit=True) as connection:
        yield connection


def in_transaction(connection: Connection) -> None:
    connection.execute("BEGIN")
    with connection.pipeline():
        connection.execute("SELECT 1")
        connection.execute("SELECT 2")


def nested(connection: Connection) -> None:
    connection.execute("BEGIN")
    with connection.pipeline():
        connection.execute("SELECT 1")
    with connection.pipeline():
        connection.execute("SELECT 2").fetchall()
        with connection.pipeline():
            connection.execute("SELECT 3")


def around_a_transaction(connection: Connection) -> None:
    connection.execute("SET idle_session_timeout = 100")
    with connection.pipeline(), connection.transaction():
        connection.execute("SELECT 1").fetchall()


@pytest.mark.parametrize("work", [in_transaction, nested, around_a_transaction])
def test_a_session_that_waits_behind_a_pipeline_is_ended(
    connection: Connection, database_url: str, work: Callable[[Connection], None]
) -> None:
    work(connection)
    with psycopg.connect(database_url, autocommit=True) as looking:
        eventually(
            lambda: (
                looking.execute(
                    "SELECT FROM pg_stat_activity WHERE pid = %s", (connection.info.backend_pid,)
                ).fetchone()
                is None
            ),
            "the server has ended the session",
        )
    with pytest.raises(psycopg.Error):
        connection.execute("SELECT 1")


def test_an_error_in_a_pipeline_leaves_a_connection_that_works(connection: Connection) -> None:
    def fails() -> None:
        with connection.pipeline():
            connection.execute("SELECT 1 / %s", (0,))
            connection.execute("SELECT 2")

    with pytest.raises(psycopg.errors.DivisionByZero):
        fails()
    assert connection.execute("SELECT 3").fetchone() == (3,)


def test_a_pipeline_takes_more_than_the_server_reads_at_once(connection: Connection) -> None:
    large = b"x" * 4_000_000
    with connection.pipeline():
        found = [connection.execute("SELECT %s::bytea", (large,)) for _ in range(8)]
    assert [one.fetchone() for one in found] == [(large,)] * 8
