"""The one connection of a member: never waited on for longer than a lease can spare, and a bell."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import Connection, sql
from psycopg.pq import TransactionStatus

from packhorse.db.bell import Bell
from packhorse.db.engine import Timeouts, connection_arguments, conninfo
from packhorse.db.metadata import BOOKKEEPER
from packhorse.topology.membership import StoreUnavailable
from packhorse.topology.patience import PatientConnection

CHANNEL = "packhorse_topology"


class LeaseSession:
    """A connection as the bookkeeper, made when needed; used by one thread, woken by any.

    A commit is not waited for until it is on disk, unless its transaction says so.
    """

    def __init__(self, url: str, name: str, patience_s: float) -> None:
        milliseconds = int(patience_s * 1000)
        limits = Timeouts(milliseconds * 3 // 4, milliseconds // 2, milliseconds)
        self._settings: Any = connection_arguments(url, name) | {
            "connect_timeout": str(max(2, int(patience_s))),
            "tcp_user_timeout": str(milliseconds),
            "session": limits.settings
            | {"synchronous_commit": "off", "plan_cache_mode": "force_generic_plan"},
        }
        self._url, self._patience_s = conninfo(url), patience_s
        self.together_s = 0.0
        """Hints that follow one within this time are answered with it."""
        self.number = 0
        """Of the connection; the next one has another."""
        self._connection: PatientConnection | None = None
        self._bell = Bell()

    @contextmanager
    def use(self) -> Iterator[Connection]:
        """Lend the connection, each statement its own transaction.

        Trouble becomes `StoreUnavailable`, and where it broke the connection, the next use connects
        again.
        """
        try:
            yield self._connected()
        except psycopg.Error as error:
            self._disconnect_if_broken()
            raise StoreUnavailable(f"the cluster's database can't be asked: {error}") from error
        except BaseException:
            self._disconnect()
            raise

    def wait(self, seconds: float) -> None:
        """Return at the bell, soon after a notification of another session, or in the end.

        Also after one that has come while the connection was in use.
        """
        until = time.monotonic() + seconds
        while not self._hears():
            rung = self._bell.wait(until - time.monotonic(), self._connection)
            if rung or time.monotonic() >= until:
                return
        self._bell.wait(min(until - time.monotonic(), self.together_s))
        self._hears()

    def wake(self) -> None:
        """Ring the bell."""
        self._bell.ring()

    def close(self) -> None:
        """Close the connection and the bell."""
        self._disconnect()
        self._bell.close()

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = self._opened()
            self.number += 1
        return self._connection

    def _opened(self) -> PatientConnection:
        """Connect; a session without its role or its hints is not kept."""
        connection = PatientConnection.connect(
            self._url, autocommit=True, prepare_threshold=1, **self._settings
        )
        connection.patience_s = self._patience_s
        try:
            connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(BOOKKEEPER)))
            connection.execute(f"LISTEN {CHANNEL}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _hears(self) -> bool:
        """Return whether another session has notified; without a connection there is silence."""
        if self._connection is None:
            return False
        try:
            own = self._connection.server_pid
            heard = [hint for hint in self._connection.notifies(timeout=0) if hint.pid != own]
        except psycopg.Error:
            self._disconnect()
            return False
        return bool(heard)

    def _disconnect_if_broken(self) -> None:
        """Keep a connection that has only refused something."""
        connection = self._connection
        if connection and connection.info.transaction_status is not TransactionStatus.IDLE:
            self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()
