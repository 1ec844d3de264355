"""One connection to the journal's database, made when it is needed and anew after it broke."""

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

import psycopg

from packhorse.db.connect import connect, retry_pause_s
from packhorse.db.engine import DEFAULT_TIMEOUTS, Timeouts
from packhorse.db.pool import MOMENT_S, is_alive
from packhorse.db.prepare import require_sessions
from packhorse.messaging.api import JournalUnavailable

_MOST, _IDLE_S = 16, 10.0
_NO_SCHEMA = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.InvalidSchemaName,
    psycopg.errors.UndefinedFunction,
)


class SharedSession:
    """A connection in autocommit mode that several threads may take turns with."""

    def __init__(self, url: str, name: str, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> None:
        self._url, self._name, self._timeouts = url, name, timeouts
        self._lock = threading.RLock()
        self._connection: psycopg.Connection | None = None
        self._failures = 0

    @property
    def pause_s(self) -> float:
        """How long to wait before the next try to connect."""
        return retry_pause_s(self._failures)

    @contextmanager
    def use(self) -> Iterator[psycopg.Connection]:
        """Lend the connection. After an error no transaction is left open.

        Raises `JournalUnavailable` for whatever the database says, and `DatabaseUnusable` behind
        a pooler that shares sessions.
        """
        with self._lock:
            try:
                yield self.connection()
            except _NO_SCHEMA as error:
                self.reset()
                raise JournalUnavailable(
                    "the journal's database has no tables of packhorse, or not yet those of this "
                    "release; `packhorse topics create --journal URL` makes them"
                ) from error
            except psycopg.errors.InsufficientPrivilege as error:
                self.reset()
                raise JournalUnavailable(
                    f"the journal's database refuses this login: {error}; `packhorse topics grant` "
                    "allows what a publisher or subscriber needs, its owner's login the rest"
                ) from error
            except psycopg.Error as error:
                self.reset()
                raise JournalUnavailable(f"the journal's database says: {error}") from error
            except BaseException:
                self.reset()
                raise

    def connection(self) -> psycopg.Connection:
        """Return the connection, made anew if need be. Raises `psycopg.Error`."""
        if self._connection is not None and not is_alive(self._connection):
            self.drop()
        if self._connection is None:
            self._failures += 1  # until proven otherwise
            self._connection = self._connected()
        self._failures = 0
        return self._connection

    def _connected(self) -> psycopg.Connection:
        connection = connect(self._url, self._name, timeouts=self._timeouts, autocommit=True)
        try:
            require_sessions(connection, self._url)
        except BaseException:
            connection.close()
            raise
        return connection

    def reset(self) -> None:
        """Leave no transaction open: roll back, or drop a connection that can't."""
        connection = self._connection
        if connection is None or connection.closed:
            return
        try:
            connection.rollback()
        except psycopg.Error:
            self.drop()

    def drop(self) -> None:
        """Close the connection; the next use makes another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def close(self) -> None:
        """Close the connection once nobody uses it."""
        with self._lock:
            self.drop()


class Sessions:
    """Lends sessions to those who look into a journal, as many as look at the same time.

    So many readers that mostly wait, and an appender, need one connection. Nobody is lent more than
    one at a time.
    """

    def __init__(
        self,
        url: str,
        name: str,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        self._open = partial(SharedSession, url, name, timeouts)
        self._places, self._changed = threading.BoundedSemaphore(_MOST), threading.Condition()
        self._free: deque[tuple[SharedSession, float]] = deque()
        """The last one was used last, and is lent next."""
        self._lent, self._closed = 0, False

    @contextmanager
    def lend(self) -> Iterator[SharedSession]:
        """Lend a session; waits for one when all are in use."""
        with self._places:
            with self._changed:
                if not self._free and self._lent:  # most are in use for a few milliseconds
                    self._changed.wait_for(lambda: self._free, MOMENT_S)
                self._lent += 1
                session = self._free.pop()[0] if self._free else self._open()
            try:
                yield session
            finally:
                self._take_back(session)

    @contextmanager
    def use(self) -> Iterator[psycopg.Connection]:
        """Lend a connection, as `SharedSession.use` does."""
        with self.lend() as session, session.use() as connection:
            yield connection

    def close(self) -> None:
        """Close what is not in use now, and everything else when it is given back."""
        with self._changed:
            self._closed = True
            idle = [session for session, _ in self._free]
            self._free.clear()
        for session in idle:
            session.close()

    def _take_back(self, session: SharedSession) -> None:
        now = time.monotonic()
        idle = []
        with self._changed:
            self._lent -= 1
            self._free.append((session, now))
            self._changed.notify()
            while self._free and (self._closed or now - self._free[0][1] > _IDLE_S):
                idle.append(self._free.popleft()[0])
        for one in idle:
            one.close()
