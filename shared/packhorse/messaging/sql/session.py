"""One connection to the journal's database, made when it is needed and anew after it broke."""

import random
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg

from packhorse.db.connect import connect
from packhorse.db.engine import DEFAULT_TIMEOUTS, Timeouts
from packhorse.messaging.api import JournalUnavailable

_LONGEST_PAUSE_S = 5.0


class Session:
    """A connection in autocommit mode that several threads may take turns with."""

    def __init__(self, url: str, name: str, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> None:
        self._url, self._name, self._timeouts = url, name, timeouts
        self._lock = threading.RLock()
        self._connection: psycopg.Connection | None = None
        self._failures = 0

    @property
    def pause_s(self) -> float:
        """How long to wait before the next try: doubling with each failure, jittered."""
        longest = min(0.05 * 2.0 ** min(self._failures, 10), _LONGEST_PAUSE_S)
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - no secret

    @contextmanager
    def use(self) -> Iterator[psycopg.Connection]:
        """Lend the connection. Raises `JournalUnavailable` for whatever the database says.

        After an error no transaction is left open.
        """
        with self._lock:
            try:
                yield self.connection()
            except psycopg.Error as error:
                self.reset()
                raise JournalUnavailable(f"the journal's database says: {error}") from error
            except BaseException:
                self.reset()
                raise

    def connection(self) -> psycopg.Connection:
        """Return the connection, made anew if need be. Raises `psycopg.Error`."""
        if self._connection is not None and not _is_alive(self._connection):
            self.drop()
        if self._connection is None:
            self._failures += 1  # until proven otherwise
            self._connection = connect(
                self._url, self._name, timeouts=self._timeouts, autocommit=True
            )
        self._failures = 0
        return self._connection

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


def _is_alive(connection: psycopg.Connection) -> bool:
    """Whether the server has not hung up: an idle connection with news has bad news."""
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return not poll.poll(0)
