"""The leases of workers: who may do jobs now, by the database's clock (R28).

All functions are called in a transaction as the bookkeeper. A run of a worker has a fresh
`runtime_id`; a job's attempt belongs to a run and an epoch, so a run that was away past its lease
can't end what another has taken over.
"""

from dataclasses import dataclass
from uuid import uuid4

from psycopg import Connection

from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_as
from packhorse.db.run_sessions import tie_transaction

LEASE_S = 30.0
"""How long a lease lasts without renewal."""
RENEWAL_S = 10.0
"""How often it is renewed."""


@dataclass(frozen=True, slots=True)
class WorkerRun:
    """One run of a worker, on one instance."""

    instance: str
    runtime_id: str

    @classmethod
    def begin(cls, instance: str) -> "WorkerRun":
        """Return a run that nobody has had before; `renew` makes it known."""
        return cls(instance, uuid4().hex)


@dataclass(frozen=True, slots=True)
class HeldAttempt:
    """An attempt that a run still has."""

    number: int
    epoch: int
    stop_requested: bool


def act_with(connection: Connection, runtime_id: str) -> None:
    """Let a transaction act as the bookkeeper, and end with the lease where its process is paused.

    Called before the other functions.
    """
    act_as(connection, BOOKKEEPER)
    tie_transaction(connection, runtime_id)


def renew(connection: Connection, run: WorkerRun, lease_s: float = LEASE_S) -> None:
    """Take or renew the lease.

    A run whose lease was over may go on: what others have taken over meanwhile has another epoch.
    """
    connection.execute(
        """
        INSERT INTO jobs.worker AS w (runtime_id, instance, lease_until)
        VALUES (%s, %s, clock_timestamp() + make_interval(secs => %s))
        ON CONFLICT (runtime_id) DO UPDATE SET lease_until = excluded.lease_until
        """,
        (run.runtime_id, run.instance, lease_s),
    )


def holdings(connection: Connection, run: WorkerRun) -> list[HeldAttempt]:
    """Return all attempts that the run still has; one that is not among them is lost."""
    rows = connection.execute(
        "SELECT number, epoch, stop_requested FROM jobs.job "
        "WHERE state = 'ACTIVE' AND runtime_id = %s",
        (run.runtime_id,),
    )
    return [HeldAttempt(*row) for row in rows]


def leave(connection: Connection, run: WorkerRun) -> None:
    """Give the lease back; jobs that were not released are rescued at once, as LOST."""
    connection.execute("DELETE FROM jobs.worker WHERE runtime_id = %s", (run.runtime_id,))
