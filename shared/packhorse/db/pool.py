"""One bounded pool of connections for all parts of a program, each of which has its share of it.

A pool of its own for each part would hold connections that nobody uses, and threads. What is idle
here is given back to the server soon.
"""

import select
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import psycopg
from psycopg.pq import TransactionStatus
from psycopg_pool import PoolClosed, PoolTimeout

from packhorse.db.connect import IDLE_S, PATIENCE_S, connect
from packhorse.db.engine import DEFAULT_TIMEOUTS, Timeouts

MOMENT_S = 0.05
"""So long a borrower waits for a connection that is in use before it makes a further one.

Most are in use for a few milliseconds, and making one costs both sides as much.
"""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0


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

    pool: "SharedPool"
    most: int
    _places: threading.BoundedSemaphore = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_places", threading.BoundedSemaphore(self.most))

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
            with self.pool.lend(until) as connection:
                yield connection
        finally:
            self._places.release()


class SharedPool:
    """A component, to be started before everybody who borrows: it closes the pool after them.

    The shares bound how many connections there are. So no part waits because of another one, but
    for a moment, and what one has given back serves the next. It connects when it is first used,
    and has a thread only while it holds a connection that nobody uses.
    """

    def __init__(
        self,
        url: str,
        application: str,
        *,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        idle_s: float = IDLE_S,
    ) -> None:
        self._connect = partial(connect, url, application, timeouts=timeouts)
        self._application, self._idle_s = application, idle_s
        self._changed, self._stopping = threading.Condition(), threading.Event()
        self._idle: deque[tuple[psycopg.Connection, float]] = deque()
        """With when it was given back; the last one was used last, and is lent next."""
        self._lent = 0
        self._closing_idle: threading.Thread | None = None

    def share(self, most: int) -> Share:
        """Return a further share; the pool grows by as many connections at most."""
        return Share(self, most)

    def start(self) -> None:
        """Do nothing: the pool connects when it is first used."""

    def stop(self, timeout: float) -> None:
        """Close what is not in use now, and everything else when it is given back."""
        with self._changed:
            self._stopping.set()
            idle, thread = [one for one, _ in self._idle], self._closing_idle
            self._idle.clear()
            self._changed.notify_all()
        _close(idle)
        if thread is not None:
            thread.join(timeout)

    @contextmanager
    def lend(self, until: float) -> Iterator[psycopg.Connection]:
        """Lend a connection, made anew where none is idle; `until` is a moment of `monotonic`.

        Tries to connect until then. Raises `PoolTimeout`, and `PoolClosed` after the end.
        """
        connection = self._taken(until)
        try:
            yield connection
            connection.commit()
        except BaseException:
            with suppress(psycopg.Error):
                connection.rollback()
            raise
        finally:
            self._take_back(connection)

    def _taken(self, until: float) -> psycopg.Connection:
        with self._changed:
            if not self._idle and self._lent:
                moment = max(0.0, min(MOMENT_S, until - time.monotonic()))
                self._changed.wait_for(lambda: self._idle or self._stopping.is_set(), moment)
            idle = self._last_used()
            self._lent += 1
        try:
            while idle is not None and not is_alive(idle):
                _close([idle])
                idle = self._last_used()
            return idle or self._connected(until)
        except BaseException:
            with self._changed:
                self._lent -= 1
            raise

    def _last_used(self) -> psycopg.Connection | None:
        with self._changed:
            return self._idle.pop()[0] if self._idle else None

    def _connected(self, until: float) -> psycopg.Connection:
        pause = _FIRST_PAUSE_S
        while not self._stopping.is_set():
            try:
                return self._connect()
            except psycopg.OperationalError as error:
                left = until - time.monotonic()
                if left <= 0:
                    raise PoolTimeout(f"no connection to the database: {error}") from error
            self._stopping.wait(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        raise PoolClosed(f"the pool {self._application} is closed: its program ends")

    def _take_back(self, connection: psycopg.Connection) -> None:
        usable = connection.info.transaction_status is TransactionStatus.IDLE
        with self._changed:
            self._lent -= 1
            if usable and not self._stopping.is_set():
                self._idle.append((connection, time.monotonic()))
                self._watch_idle()
            else:
                usable = False
            self._changed.notify()
        if not usable:
            _close([connection])

    def _watch_idle(self) -> None:
        if self._closing_idle is None:
            thread = threading.Thread(
                target=self._close_idle, name=f"{self._application}-idle", daemon=True
            )
            with suppress(RuntimeError):  # no thread can be had now; the next borrower tries again
                thread.start()
                self._closing_idle = thread

    def _close_idle(self) -> None:
        """Close what nobody has needed for a while, until there is nothing idle."""
        pause: float | None = self._idle_s
        while pause is not None and not self._stopping.wait(pause):
            old, now = [], time.monotonic()
            with self._changed:
                while self._idle and now - self._idle[0][1] >= self._idle_s:
                    old.append(self._idle.popleft()[0])
                pause = self._idle[0][1] + self._idle_s - now if self._idle else None
                if pause is None:
                    self._closing_idle = None
            _close(old)


def is_alive(connection: psycopg.Connection) -> bool:
    """Return whether the server has not hung up: an idle connection with news has bad news."""
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return not poll.poll(0)


def _close(connections: list[psycopg.Connection]) -> None:
    for connection in connections:
        with suppress(psycopg.Error):
            connection.close()


def ask(pool: Lender) -> None:
    """Return when the database answers, for readiness. Raises what borrowing a connection does."""
    with pool.connection() as connection:
        connection.execute("SELECT 1")
