"""The append lock: of all publishers of one author, one at a time exports and appends (R6).

It is a session lock of Postgres on a connection of its own, taken by a statement before the
transaction begins: a REPEATABLE READ transaction takes its snapshot with its first query.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
from psycopg import Connection, IsolationLevel

from packhorse.db.connect import connect
from packhorse.db.engine import Timeouts
from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_always_as
from packhorse.errors import Transient
from packhorse_services.publisher.outbox.append_state import ensure_state

_LOCK = 0x736C6F74  # "slot"
_IDLE = "90s"
"""A holder that is paused, or waits for the journal for longer, has lost the lock."""


class AppendLockBusy(Transient):
    """Another publisher of this author holds the append lock; try again."""


class AppendLock:
    """The right to publish from one author database. Used by one thread."""

    def __init__(self, open_connection: Callable[[], Connection]) -> None:
        self._open = open_connection
        self._connection: Connection | None = None
        self.verified = False
        """Whether the journal was searched for foreign numbers since the connection was made."""

    @contextmanager
    def hold(self) -> Iterator[Connection]:
        """Hold the lock; gives a connection with no open transaction.

        Raises `AppendLockBusy` after the connection's lock timeout, `psycopg.Error` when Postgres
        is away. An error inside closes the connection, which releases the lock.
        """
        connection = self._connected()
        try:
            _lock(connection)
        except psycopg.errors.LockNotAvailable as error:
            raise AppendLockBusy("another publisher holds the append lock; try again") from error
        except BaseException:
            self.close()
            raise
        try:
            yield connection
            _unlock(connection)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection; the next `hold` makes another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = self._open()
            self.verified = False
        return self._connection


def lock_connection(url: str, application: str, *, lock_ms: int = 5_000) -> Connection:
    """Return a connection for an `AppendLock`, the bookkeeper's.

    Raises `psycopg.OperationalError`.
    """
    timeouts = Timeouts(statement_ms=60_000, lock_ms=lock_ms, idle_in_transaction_ms=60_000)
    connection = connect(url, application, timeouts=timeouts, autocommit=True)
    act_always_as(connection, BOOKKEEPER)
    ensure_state(connection)
    connection.isolation_level = IsolationLevel.REPEATABLE_READ
    return connection


def _lock(connection: Connection) -> None:
    connection.execute(
        "SELECT pg_advisory_lock(%s), set_config('idle_session_timeout', %s, false)",
        (_LOCK, _IDLE),
    )


def _unlock(connection: Connection) -> None:
    connection.execute(
        "SELECT pg_advisory_unlock(%s), set_config('idle_session_timeout', '0', false)", (_LOCK,)
    )
