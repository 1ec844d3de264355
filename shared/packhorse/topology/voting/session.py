"""A store's one connection to the cluster's database, with hints of what has changed there."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import Connection, sql

from packhorse.db.bell import Bell
from packhorse.db.engine import Timeouts, connection_arguments, conninfo
from packhorse.topology.leader import AWAY
from packhorse.topology.membership import StoreUnavailable
from packhorse.topology.patience import IMPATIENT, PatientConnection

_TIMEOUTS = Timeouts(statement_ms=5_000, lock_ms=2_000, idle_in_transaction_ms=5_000)
"""A heartbeat that takes longer has failed: nobody else must wait for it."""

_MOST_HINTS = 1_000


class HintedSession:
    """A connection in autocommit mode, made when it is needed and anew after it broke.

    It hears `channel`; what it says there itself is not heard. One thread uses it, but for `wake`.
    """

    def __init__(self, url: str, name: str, channel: str) -> None:
        self._url, self._channel = conninfo(url), channel
        self._settings: Any = connection_arguments(url, name) | {
            "session": _TIMEOUTS.settings,
            **IMPATIENT,
        }
        self._connection: PatientConnection | None = None
        self._hints: list[str] = []
        self._bell = Bell()

    @contextmanager
    def use(self) -> Iterator[Connection]:
        """Lend the connection. Raises `StoreUnavailable` when the database is away or too slow.

        After an error no transaction is left open.
        """
        try:
            yield self._connected()
        except AWAY as error:
            self._drop()
            raise StoreUnavailable(f"the cluster's database says: {error}") from error
        except BaseException:
            self._drop()
            raise

    def notify(self, payload: str = "") -> None:
        """Give the other sessions a hint; they need none, so one that fails is left out."""
        with suppress(StoreUnavailable), self.use() as connection:
            connection.execute("SELECT pg_notify(%s, %s)", (self._channel, payload))

    def wait(self, seconds: float, concerns: Callable[[str], bool] = lambda _: True) -> None:
        """Return after a hint whose payload concerns, after `wake`, or after `seconds`."""
        until = time.monotonic() + seconds
        while not self._has_heard(concerns):
            rest = until - time.monotonic()
            if rest <= 0 or self._bell.wait(rest, self._connection):
                return

    def wake(self) -> None:
        """Let `wait` return, now or the next time; may be called by any thread."""
        self._bell.ring()

    def close(self) -> None:
        """Give the connection back."""
        self._drop()
        self._bell.close()

    def _connected(self) -> Connection:
        self._collect()  # so that a connection which the server has ended is noticed
        if self._connection is None or self._connection.closed:
            made = PatientConnection.connect(self._url, autocommit=True, **self._settings)
            self._connection = made
            made.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def _has_heard(self, concerns: Callable[[str], bool]) -> bool:
        self._collect()
        hints, self._hints = self._hints, []
        return any(concerns(hint) for hint in hints)

    def _collect(self) -> None:
        """Keep what others have said; anybody can say anything, so only a little of it."""
        if self._connection is None or self._connection.closed:
            return
        try:
            own = self._connection.server_pid
            said = [one.payload for one in self._connection.notifies(timeout=0) if one.pid != own]
        except psycopg.Error:
            self._drop()  # the next use says what is wrong
        else:
            self._hints = [*self._hints, *said][-_MOST_HINTS:]
