"""Connections to the journal's database: nothing is left open by who fails, or by who is idle."""

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from packhorse.messaging.api import JournalUnavailable
from packhorse.messaging.sql import session
from packhorse.messaging.sql.session import Sessions, SharedSession


def _fail_in_a_transaction(shared: SharedSession, error: BaseException) -> None:
    with shared.use() as connection:
        connection.execute("BEGIN")
        raise error


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (psycopg.errors.UndefinedTable("no table"), JournalUnavailable),
        (psycopg.errors.InsufficientPrivilege("no right"), JournalUnavailable),
        (psycopg.errors.DeadlockDetected("no end"), JournalUnavailable),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_whoever_fails_leaves_no_transaction_open(
    database_url: str, error: BaseException, raised: type[BaseException]
) -> None:
    shared = SharedSession(database_url, "tests")
    with shared.use() as connection:
        pass
    with pytest.raises(raised):
        _fail_in_a_transaction(shared, error)
    with shared.use() as again:
        assert again is connection
        assert again.info.transaction_status is TransactionStatus.IDLE
    shared.close()


def test_sessions_that_are_closed_end_at_once_or_when_they_are_given_back(
    database_url: str,
) -> None:
    sessions = Sessions(database_url, "tests")
    with sessions.use() as lent:
        with sessions.use() as idle:
            pass
        sessions.close()
        assert (idle.closed, lent.closed) == (True, False)
    assert lent.closed


def test_a_session_that_nobody_needs_is_closed(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_IDLE_S", -1)
    sessions = Sessions(database_url, "tests")
    with sessions.use() as connection:
        pass
    assert connection.closed
