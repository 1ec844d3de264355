"""One bounded pool of connections for all parts of a program, each of which has its share of it.

A pool of its own for each part would hold connections that nobody uses, and four threads. What is
idle here is given back to the server soon.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from threading import BoundedSemaphore
from typing import Protocol

import psycopg
from psycopg_pool import ConnectionPool, PoolTimeout

from packhorse.db.connect import IDLE_S, PATIENCE_S, open_pool
from packhorse.db.engine import DEFAULT_TIMEOUTS, Timeouts


class Lender(Protocol):
    """Lends connections, each to one borrower at a time: a pool, or a share of one."""

    def connection(
        self, timeout: float | None = None
    ) -> AbstractContextManager[psycopg.Connection]:
        """Lend a connection, with a transaction that commits unless the block raises.

        Raises `PoolTimeout`, or what connecting raises.
        """
        ...


@dataclass(frozen=True, slots=True)
class Share:
    """Lends at most `most` connections of a pool at a time."""

    pool: ConnectionPool[psycopg.Connection]
    most: int
    _places: BoundedSemaphore = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_places", BoundedSemaphore(self.most))

    @contextmanager
    def connection(self, timeout: float | None = None) -> Iterator[psycopg.Connection]:
        """Lend a connection. Raises `PoolTimeout` when the share is in use for too long."""
        patience = PATIENCE_S if timeout is None else timeout
        until = time.monotonic() + patience
        if not self._places.acquire(timeout=max(0.0, patience)):
            raise PoolTimeout(
                f"all {self.most} connections that this part of the program may have were in use "
                f"for {patience:.1f} s"
            )
        try:
            with self.pool.connection(max(0.0, until - time.monotonic())) as connection:
                yield connection
        finally:
            self._places.release()


class SharedPool:
    """A component, to be started before everybody who borrows: it closes the pool after them.

    The pool holds as many connections as all shares together at most. So no part waits because
    of another one, and what one has given back serves the next.
    """

    def __init__(
        self,
        url: str,
        application: str,
        *,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        idle_s: float = IDLE_S,
    ) -> None:
        self._pool = open_pool(url, application, timeouts=timeouts, size=1, idle_s=idle_s)
        self._most = 0

    def share(self, most: int) -> Share:
        """Return a further share; the pool grows by as many connections at most."""
        self._most += most
        self._pool.resize(0, self._most)
        return Share(self._pool, most)

    def start(self) -> None:
        """Do nothing: the pool connects when it is first used."""

    def stop(self, timeout: float) -> None:
        """Close the pool."""
        self._pool.close(timeout)


def ask(pool: Lender) -> None:
    """Return when the database answers, for readiness. Raises what borrowing a connection does."""
    with pool.connection() as connection:
        connection.execute("SELECT 1")
