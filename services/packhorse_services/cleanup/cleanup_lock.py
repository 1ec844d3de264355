"""The right to clean up: of all instances one at a time, and never one that was replaced.

A session lock of Postgres says who may clean up; it ends with the session, and the session ends
when its holder is silent for too long. An epoch, raised with each lock and checked in every
transaction, fences a holder that was paused. A lock of the service is a job's, too: that
is checked in every transaction as well, and the session ends with the lease of its worker.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass

import psycopg
from psycopg import Connection

from packhorse.db.connect import connect
from packhorse.db.transactions import bookkeeping
from packhorse.errors import Transient
from packhorse.jobs.consumer import JobContext
from packhorse.jobs.job import JobLost

_LOCK = 0x636C6E70  # "clnp"
_IDLE = "5min"
"""A holder that is silent for longer, because it is paused, loses its session."""
_PATIENCE = "3s"


class CleanupBusy(Transient):
    """Another instance is cleaning up; wait for it to end."""


class CleanupLockLost(Transient):
    """Another instance has taken over since; nothing more is removed by this one."""


@dataclass(frozen=True)
class CleanupLock:
    """The lock of one instance, which `connection` holds."""

    connection: Connection
    epoch: int
    job: JobContext | None = None
    """What it is done for; None by hand."""

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Give a transaction as the bookkeeper that commits only while the lock is held.

        Raises `CleanupLockLost`, or `psycopg.Error` when the session has ended.
        """
        with bookkeeping(self.connection):
            held = self.connection.execute(
                "SELECT FROM bookkeeping.cleanup WHERE epoch = %s FOR UPDATE", (self.epoch,)
            )
            if held.fetchone() is None:
                raise CleanupLockLost("another cleanup has begun; this one ends")
            self._check_job()
            yield self.connection

    def check(self) -> None:
        """Raise unless the lock is still held; also shows Postgres that its holder lives."""
        with self.transaction():
            pass

    def _check_job(self) -> None:
        try:
            if self.job is not None:
                self.job.check(self.connection)
        except JobLost as error:
            raise CleanupLockLost("the job is another instance's; this cleanup ends") from error


@contextmanager
def acquire_lock(database_url: str, job: JobContext | None = None) -> Iterator[CleanupLock]:
    """Clean up alone, for a job or by hand. Raises `CleanupBusy` when somebody else does.

    A run that has just died may hold the lock until Postgres has noticed, so that is waited for.
    One whose session says nothing for `_IDLE` loses it.
    """
    with closing(connect(database_url, "cleanup", autocommit=True)) as connection:
        connection.execute(
            "SELECT set_config('lock_timeout', %s, false), "
            "set_config('idle_session_timeout', %s, false)",
            (_PATIENCE, _IDLE),
        )
        if job is not None:
            job.tie_to_lease(connection)
        try:
            connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
        except psycopg.errors.LockNotAvailable as error:
            raise CleanupBusy("another instance is cleaning up; wait for it to end") from error
        with bookkeeping(connection):
            [(epoch,)] = connection.execute(
                "UPDATE bookkeeping.cleanup SET epoch = epoch + 1 RETURNING epoch"
            ).fetchall()
        try:
            yield CleanupLock(connection, epoch, job)
        finally:
            with suppress(psycopg.Error):  # a closed session keeps it until Postgres has noticed
                connection.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))
