"""Limits on idle sessions end that of a paused process, also behind a pipeline."""

from collections.abc import Callable, Generator, Iterator
from contextlib import suppress

import psycopg
import pytest
from psycopg import Connection, waiting

from packhorse.db.connect import connect
from tests.harness.waiting import eventually

ROUNDS = 5  # a Flush behind the Sync comes too late to stop the clock in one of three


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with connect(database_url, "idle-limits", autocommit=True) as connection:
        yield connection


def limit(connection: Connection) -> None:
    """Let the session be idle for a moment at most; the last statement, so that none comes late."""
    connection.execute(
        "SELECT set_config('idle_in_transaction_session_timeout', '100', false), "
        "set_config('idle_session_timeout', '100', false)"
    )


def in_transaction(connection: Connection) -> None:
    connection.execute("BEGIN")
    with connection.pipeline():
        connection.execute("SELECT 1")
        limit(connection)


def nested(connection: Connection) -> None:
    connection.execute("BEGIN")
    with connection.pipeline():
        connection.execute("SELECT 1").fetchall()
        with connection.pipeline():
            connection.execute("SELECT 2")
            limit(connection)


def around_a_transaction(connection: Connection) -> None:
    with connection.pipeline(), connection.transaction():
        connection.execute("SELECT 1").fetchall()
        limit(connection)


def many(connection: Connection) -> None:
    connection.execute("BEGIN")
    with connection.pipeline():
        connection.cursor().executemany("SELECT %s", [(1,), (2,)])
        limit(connection)


@pytest.mark.parametrize("work", [in_transaction, nested, around_a_transaction, many])
def test_a_session_that_waits_behind_a_pipeline_is_ended(
    database_url: str, work: Callable[[Connection], None]
) -> None:
    opened = [connect(database_url, "idle-limits", autocommit=True) for _ in range(ROUNDS)]
    for connection in opened:
        with suppress(psycopg.Error):  # a slow machine is late with the pipeline's end
            work(connection)
    with psycopg.connect(database_url, autocommit=True) as looking:
        eventually(
            lambda: (
                looking.execute(
                    "SELECT FROM pg_stat_activity WHERE application_name = 'idle-limits'"
                ).fetchone()
                is None
            ),
            "the server has ended the sessions",
        )
    for connection in opened:
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT 1")
        connection.close()


def test_a_connection_that_can_not_leave_a_pipeline_is_closed(connection: Connection) -> None:
    """As where the server ends it in the middle; for COPY, psycopg says so at once."""

    def busy() -> None:
        with connection.pipeline():
            connection.execute("COPY (SELECT 1) TO STDOUT")

    with pytest.raises(psycopg.Error):
        busy()
    assert connection.closed


def test_an_error_in_a_pipeline_leaves_a_connection_that_works(connection: Connection) -> None:
    def fails() -> None:
        with connection.pipeline():
            connection.execute("SELECT 1 / %s", (0,))
            connection.execute("SELECT 2")

    with pytest.raises(psycopg.errors.DivisionByZero):
        fails()
    assert connection.execute("SELECT 3").fetchone() == (3,)


def alone(connection: Connection) -> None:
    connection.execute("SELECT 1")


def in_a_transaction(connection: Connection) -> None:
    with connection.transaction():
        connection.execute("SELECT 1")


def within_a_pipeline(connection: Connection) -> None:
    with connection.pipeline():
        connection.execute("SELECT 1").fetchone()


def at_the_end_of_a_pipeline(connection: Connection) -> None:
    with connection.pipeline():
        connection.execute("SELECT 1")


@pytest.mark.parametrize(
    "work", [alone, in_a_transaction, within_a_pipeline, at_the_end_of_a_pipeline]
)
def test_a_connection_whose_socket_was_lost_in_a_statement_is_closed(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, work: Callable[[Connection], None]
) -> None:
    """What psycopg says where the socket reports an error and nothing to read: libpq sees none."""

    def lost(gen: Generator[object, object, object], *_: object, **__: object) -> object:
        try:
            next(gen)
        except StopIteration as done:  # it had nothing to wait for
            return done.value
        raise psycopg.OperationalError("connection socket closed")

    monkeypatch.setattr(waiting, "wait", lost)
    with pytest.raises(psycopg.OperationalError):
        work(connection)
    assert connection.closed


def test_a_pipeline_takes_more_than_the_server_reads_at_once(connection: Connection) -> None:
    large = b"x" * 4_000_000
    with connection.pipeline():
        found = [connection.execute("SELECT %s::bytea", (large,)) for _ in range(8)]
    assert [one.fetchone() for one in found] == [(large,)] * 8
