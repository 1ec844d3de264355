"""The lease: one worker a database, by the database's clock; taking it over fences the old one.

Safety never rests on it: an import is fenced by the epoch in its position row (R25). The lease
keeps two workers from taking turns at failing. `Connections` opens the sessions of a worker, named
so that a takeover finds them.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

import psycopg
from psycopg import Connection

from packhorse.clock import Clock, SystemClock
from packhorse.db.connect import connect
from packhorse.db.engine import Timeouts
from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_always_as, act_as
from packhorse.runtime.lifecycle import Worker, WorkerComponent
from packhorse.runtime.outage import Outage

logger = logging.getLogger(__name__)

LEASE_SESSIONS = "packhorse-lease "
SUBSCRIPTION_SESSIONS = "packhorse-subscription "
"""Sessions are named so, then the worker's instance: who is alive, and what a takeover ends."""


class Lease(WorkerComponent):
    """A component that holds the lease of a database, or waits for it (R11), and gives it back.

    A lease is free when it has run out by the database's clock, or when its holder has no lease
    session any more: a killed worker is replaced at once, a paused one after `duration_s`. It is
    renewed after a third of that.
    """

    def __init__(
        self,
        connect: Callable[[str], Connection],
        instance: str,
        duration_s: float = 10.0,
        clock: Clock | None = None,
    ) -> None:
        self._connect, self._instance = connect, instance
        self._duration_s, self._renewal_s = duration_s, duration_s / 3
        self._retry_s = min(1.0, self._renewal_s)
        self._clock = clock or SystemClock()
        self._changed = threading.Condition()
        self._epoch: int | None = None
        self._valid_until = 0.0
        self._holder = ""
        self._on_held: Callable[[], None] = lambda: None
        self._wake = threading.Event()
        self._outage = Outage(
            logger,
            "the database of the lease can't be used now",
            "the database of the lease can be used again",
            self._clock,
        )
        self._worker = Worker("lease", self._run, wake=self._wake.set)

    def epoch(self) -> int | None:
        """Return the epoch under which this worker may import now, or None."""
        with self._changed:
            return self._epoch if self._is_held() else None

    def holder(self) -> str:
        """Return the instance that held the lease when it was last looked at."""
        return self._holder

    def wait(self, timeout: float) -> int | None:
        """Return the epoch once the lease is held, or None after `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(self._is_held, timeout)
        return self.epoch()

    def when_held(self, on_held: Callable[[], None]) -> None:
        """Let `on_held` be called each time that the lease is held and was not before."""
        self._on_held = on_held

    def adopt(self, epoch: int) -> None:
        """Go on under a higher epoch, which this worker has written into the row itself."""
        with self._changed:
            if self._epoch is not None:
                self._epoch = max(self._epoch, epoch)
                self._changed.notify_all()

    def _is_held(self) -> bool:
        return self._epoch is not None and self._clock.monotonic() < self._valid_until

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            try:
                with self._connect(LEASE_SESSIONS + self._instance) as connection:
                    self._keep(connection, stopping)
            except psycopg.Error as error:
                self._outage.failed(error)
                self._clock.wait(self._wake, self._retry_s)

    def _keep(self, connection: Connection, stopping: threading.Event) -> None:
        while not stopping.is_set():
            held = self.attempt(connection) is not None
            self._outage.ended()
            self._clock.wait(self._wake, self._renewal_s if held else self._retry_s)
        self._release(connection)

    def attempt(self, connection: Connection) -> int | None:
        """Renew the lease, or take it when it is free; return its epoch when it is held."""
        requested_at = self._clock.monotonic()
        epoch = self._renew(connection) or self._take(connection)
        with self._changed:
            was_held = self._is_held()
            if epoch is not None and self._epoch is not None:
                epoch = max(epoch, self._epoch)  # one may have been adopted meanwhile
            if epoch != self._epoch:
                logger.info(
                    "lease lost" if epoch is None else "lease acquired", extra={"epoch": epoch}
                )
            self._epoch = epoch
            self._valid_until = requested_at + self._duration_s
            self._changed.notify_all()
        if epoch is not None and not was_held:
            self._on_held()
        return epoch

    def _renew(self, connection: Connection) -> int | None:
        if self._epoch is None:
            return None
        renewed = connection.execute(
            """
            UPDATE bookkeeping.lease
            SET expires_at = clock_timestamp() + make_interval(secs => %s)
            WHERE holder = %s AND epoch >= %s RETURNING epoch
            """,
            (self._duration_s, self._instance, self._epoch),
        ).fetchone()
        return None if renewed is None else int(renewed[0])

    def _take(self, connection: Connection) -> int | None:
        with connection.transaction():
            before = self._lock_if_free(connection)
            if before is None:
                return None
            epoch = self._write(connection)
            connection.execute("SET LOCAL ROLE NONE")
            self._end_sessions_of(connection, before)
            act_as(connection, BOOKKEEPER)
            connection.execute("UPDATE bookkeeping.position SET epoch = %s", (epoch,))
        self._holder = self._instance
        return epoch

    def _lock_if_free(self, connection: Connection) -> str | None:
        """Return the former holder and keep the row locked, or None while somebody holds it.

        A lease that ends later than one that begins now is cut: the database's clock was set back.
        """
        connection.execute(
            """
            INSERT INTO bookkeeping.lease (holder, epoch, expires_at)
            VALUES ('', 0, '-infinity') ON CONFLICT (singleton) DO UPDATE
            SET expires_at = clock_timestamp() + make_interval(secs => %(lease_s)s)
            WHERE lease.expires_at > clock_timestamp() + make_interval(secs => %(lease_s)s)
            """,
            {"lease_s": self._duration_s},
        )
        rows = connection.execute(
            """
            SELECT holder, expires_at <= clock_timestamp() OR NOT EXISTS (
                SELECT FROM pg_stat_activity
                WHERE datname = current_database() AND application_name = %s || holder)
            FROM bookkeeping.lease FOR UPDATE
            """,
            (LEASE_SESSIONS,),
        ).fetchall()
        self._holder, free = rows[0]
        return self._holder if free else None

    def _write(self, connection: Connection) -> int:
        rows = connection.execute(
            """
            UPDATE bookkeeping.lease SET holder = %s, epoch = epoch + 1,
                expires_at = clock_timestamp() + make_interval(secs => %s)
            RETURNING epoch
            """,
            (self._instance, self._duration_s),
        ).fetchall()
        return int(rows[0][0])

    def _end_sessions_of(self, connection: Connection, instance: str) -> None:
        """End the subscriptions of a worker that may be paused in a transaction, with its locks.

        Where this login may not end them, the time limit on idle transactions does.
        """
        connection.execute(
            """
            SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND usename = session_user
            AND application_name = %s
            """,
            (SUBSCRIPTION_SESSIONS + instance,),
        )

    def _release(self, connection: Connection) -> None:
        with self._changed:
            epoch, self._epoch = self._epoch, None
        if epoch is None:
            return
        connection.execute(
            """
            UPDATE bookkeeping.lease SET expires_at = '-infinity'
            WHERE holder = %s AND epoch = %s
            """,
            (self._instance, epoch),
        )


_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Connections:
    """Opens sessions for one worker; all are in autocommit."""

    url: str
    instance: str
    statement_ms: int = 15 * _MINUTE_MS
    lock_ms: int = 10_000
    idle_in_transaction_ms: int = 30_000

    def lease(self, application: str) -> Connection:
        """Open a session for the lease, the bookkeeper's; nothing in it may last long."""
        timeouts = Timeouts(statement_ms=5_000, lock_ms=5_000, idle_in_transaction_ms=5_000)
        return self._as_bookkeeper(application, timeouts)

    def subscription(self) -> Connection:
        """Open a session for imports, which acts as the bookkeeper until another role is set.

        A worker that is paused in a transaction loses it after `idle_in_transaction_ms`.
        """
        timeouts = Timeouts(self.statement_ms, self.lock_ms, self.idle_in_transaction_ms)
        return self._as_bookkeeper(SUBSCRIPTION_SESSIONS + self.instance, timeouts)

    def bookkeeper(self) -> Connection:
        """Open a session for statuses and commands."""
        return self._as_bookkeeper("packhorse-subscriber", Timeouts())

    def _as_bookkeeper(self, application: str, timeouts: Timeouts) -> Connection:
        connection = connect(self.url, application, timeouts=timeouts, autocommit=True)
        act_always_as(connection, BOOKKEEPER)
        return connection
