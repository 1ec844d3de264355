"""The one connection of a member: never waited on for longer than a lease can spare, and a bell."""

import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import psycopg
from psycopg import Connection, sql
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus

from packhorse.db.engine import Timeouts, conninfo, session_settings
from packhorse.db.metadata import BOOKKEEPER
from packhorse.topology.membership import StoreUnavailable

CHANNEL = "packhorse_topology"

_Answer = TypeVar("_Answer")


class _Punctual(Connection[Any]):
    """Gives up on an answer that doesn't come: behind a proxy, a cut network looks like a wait."""

    patience_s = 5.0

    def wait(
        self, gen: PQGen[_Answer], interval: float = 0.1, timeout: float | None = None
    ) -> _Answer:
        return super().wait(gen, interval, self.patience_s if timeout is None else timeout)


class Session:
    """A connection as the bookkeeper, made when needed; used by one thread, woken by any.

    A commit is not waited for until it is on disk, unless its transaction says so.
    """

    def __init__(self, url: str, name: str, patience_s: float) -> None:
        milliseconds = int(patience_s * 1000)
        limits = Timeouts(milliseconds * 3 // 4, milliseconds // 2, milliseconds)
        self._settings: Any = session_settings(name, limits) | {
            "connect_timeout": str(max(2, int(patience_s))),
            "tcp_user_timeout": str(milliseconds),
        }
        self._settings["options"] += (
            " -c synchronous_commit=off -c plan_cache_mode=force_generic_plan"
        )
        self._url, self._patience_s = conninfo(url), patience_s
        self.together_s = 0.0
        """Hints that follow one within this time are answered with it."""
        self.number = 0
        """Of the connection; the next one has another."""
        self._connection: _Punctual | None = None
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)
        self._ear.setblocking(False)

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
        """Return at the bell, soon after a notification of another session, or in the end."""
        until = time.monotonic() + seconds
        while not self._rings(until):
            if time.monotonic() >= until:
                return
            if self._hears():
                self._rings(min(until, time.monotonic() + self.together_s), deaf=True)
                self._hears()
                return

    def wake(self) -> None:
        """Ring the bell."""
        with suppress(OSError):  # it has rung already, or is closed
            self._bell.send(b"x")

    def close(self) -> None:
        """Close the connection and the bell."""
        self._disconnect()
        self._bell.close()
        self._ear.close()

    def _connected(self) -> Connection:
        if self._connection is None:
            connection = _Punctual.connect(
                self._url, autocommit=True, prepare_threshold=1, **self._settings
            )
            connection.patience_s = self._patience_s
            self._connection = connection
            self.number += 1
            connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(BOOKKEEPER)))
            connection.execute(f"LISTEN {CHANNEL}")
        return self._connection

    def _rings(self, until: float, *, deaf: bool = False) -> bool:
        """Wait for the bell, or (unless deaf) until the connection has something to say."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._ear, selectors.EVENT_READ)
            if self._connection is not None and not deaf:
                selector.register(self._connection, selectors.EVENT_READ)
            selector.select(max(0.0, until - time.monotonic()))
        try:
            return bool(self._ear.recv(4096))
        except BlockingIOError:
            return False

    def _hears(self) -> bool:
        """Tell whether another session has notified; without a connection there is silence."""
        if self._connection is None:
            return False
        try:
            own = self._connection.info.backend_pid
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
