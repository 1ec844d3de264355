"""A store's one connection to the cluster's database, with hints of what has changed there."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psycopg
from psycopg import Connection, sql
from psycopg.pq import TransactionStatus

from packhorse.db.bell import Bell
from packhorse.db.connect import AWAY
from packhorse.topology.membership import StoreUnavailable
from packhorse.topology.patience import PatientConnection

CHANNEL = "packhorse_topology"
"""Where all that changes in the topology's tables is said, whatever the store."""
_MOST_HINTS = 1_000


class StoreSession:
    """A connection in autocommit mode, made when it is needed and anew after it broke.

    It hears `CHANNEL`; what it says there itself is not heard. One thread uses it, any wakes it.
    """

    def __init__(
        self,
        connect: Callable[[], PatientConnection],
        *,
        away: tuple[type[psycopg.Error], ...] = AWAY,
        trusted: bool = False,
    ) -> None:
        """Take the errors that become `StoreUnavailable`; others are raised as they are.

        A connection that is `trusted` is used until it breaks. Any other is looked at before each
        use, and made anew where the server has ended it, and is dropped after each error.
        """
        self._connect = connect
        self._away, self._trusted = away, trusted
        self.together_s = 0.0
        """Hints that follow one within this time are answered with it."""
        self.number = 0
        """Of the connection; the next one has another."""
        self._connection: PatientConnection | None = None
        self._hints: list[str] = []
        self._bell = Bell()

    @contextmanager
    def use(self) -> Iterator[Connection]:
        """Lend the connection. Raises `StoreUnavailable` for the errors that the session was given.

        After an error no transaction is left open.
        """
        try:
            yield self._connected()
        except self._away as error:
            if not (self._trusted and self._is_idle()):  # it has more than refused something
                self._drop()
            raise StoreUnavailable(f"the cluster's database can't be asked: {error}") from error
        except BaseException:
            self._drop()
            raise

    def notify(self, payload: str = "") -> None:
        """Give the other sessions a hint; they need none, so one that fails is left out."""
        with suppress(StoreUnavailable), self.use() as connection:
            connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, payload))

    def wait(self, seconds: float, concerns: Callable[[str], bool] = lambda _: True) -> bool:
        """Return true soon after a hint whose payload concerns, or `wake`; false after `seconds`.

        Also true after a hint that has come while the connection was in use.
        """
        until = time.monotonic() + seconds
        while not self._has_heard(concerns):
            rung = self._bell.wait(until - time.monotonic(), self._connection)
            if rung or time.monotonic() >= until:
                return rung
        self._bell.wait(min(until - time.monotonic(), self.together_s))
        self._has_heard(concerns)
        return True

    def wake(self) -> None:
        """Let `wait` return, now or the next time; may be called by any thread."""
        self._bell.ring()

    def close(self) -> None:
        """Give the connection back."""
        self._drop()
        self._bell.close()

    def _connected(self) -> Connection:
        if not self._trusted:
            self._collect()
        if self._connection is None:
            made = self._connect()
            try:
                made.execute(sql.SQL("LISTEN {}").format(sql.Identifier(CHANNEL)))
            except BaseException:
                made.close()
                raise
            self._connection = made
            self.number += 1
        return self._connection

    def _is_idle(self) -> bool:
        connection = self._connection
        status = None if connection is None else connection.info.transaction_status
        return status is TransactionStatus.IDLE

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
        if self._connection is None:
            return
        try:
            own = self._connection.server_pid
            said = [one.payload for one in self._connection.notifies(timeout=0) if one.pid != own]
        except psycopg.Error:
            self._drop()  # the next use says what is wrong
        else:
            self._hints = [*self._hints, *said][-_MOST_HINTS:]
