"""The append lock: who holds it and is gone, paused or at fault keeps nobody from it for long."""

from collections.abc import Iterator

import psycopg
import pytest

from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.pool import is_alive
from packhorse_services.publisher.outbox import append_lock
from packhorse_services.publisher.outbox.append_lock import AppendLock, lock_connection
from tests.harness.waiting import eventually


@pytest.fixture
def lock(database_url: str) -> Iterator[AppendLock]:
    lock = AppendLock(lambda: lock_connection(database_url, "tests-lock", lock_ms=20_000))
    yield lock
    lock.close()


@pytest.fixture
def other(database_url: str) -> Iterator[AppendLock]:
    """Another publisher's, which waits until a session that has ended is gone."""
    other = AppendLock(lambda: lock_connection(database_url, "tests-other", lock_ms=60_000))
    yield other
    other.close()


def limits(connection: psycopg.Connection) -> tuple[str, ...]:
    """Return how long a session may be idle, idle in a transaction, and in one statement."""
    row = connection.execute(
        "SELECT current_setting('idle_session_timeout'), "
        "current_setting('idle_in_transaction_session_timeout'), "
        "current_setting('statement_timeout')"
    ).fetchone()
    return row or ()


def test_r25_who_holds_it_waits_for_nothing_for_ever_and_who_does_not_keeps_the_session(
    lock: AppendLock,
) -> None:
    with lock.hold() as connection:
        assert limits(connection) == ("90s", "1min", "1min")
        assert connection.execute("SELECT current_user").fetchone() == (BOOKKEEPER,)
    assert limits(connection) == ("0", "1min", "1min")


def lose(lock: AppendLock, other: AppendLock, patched: pytest.MonkeyPatch) -> None:
    """Hold a lock until Postgres gives it to another one."""
    with lock.hold() as connection:
        eventually(lambda: not is_alive(connection), "Postgres has ended the session")
        patched.undo()
        with other.hold():
            pass


def test_r25_a_holder_that_is_paused_loses_it(
    lock: AppendLock, other: AppendLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_lock, "_IDLE", "50ms")
    with pytest.raises(psycopg.OperationalError):
        lose(lock, other, monkeypatch)
    with lock.hold():
        pass


def test_r6_what_goes_wrong_inside_gives_it_back(lock: AppendLock, other: AppendLock) -> None:
    with pytest.raises(ZeroDivisionError), lock.hold():
        raise ZeroDivisionError
    with other.hold():
        pass


def test_another_connection_has_the_journal_searched_anew(lock: AppendLock) -> None:
    with lock.hold():
        lock.verified = True
    with lock.hold():
        assert lock.verified
    lock.close()
    with lock.hold():
        assert not lock.verified
