"""Looks at, and touches, the rows of the lease store behind its back."""

from typing import Any

import psycopg
from psycopg import Connection

from packhorse.topology.lease.store import InstanceState
from tests.harness.waiting import eventually


def rows(url: str) -> list[tuple[Any, ...]]:
    """Return (id, state, joined) of all instances."""
    with psycopg.connect(url) as connection:
        return connection.execute(
            "SELECT id, state, joined FROM topology.instance ORDER BY joined, id"
        ).fetchall()


def states(url: str) -> dict[str, InstanceState]:
    """Return the state of each instance."""
    return {row[0]: InstanceState(row[1]) for row in rows(url)}


def age(url: str, seconds: float, *names: str) -> None:
    """Let the leases of these end so much sooner: as if that time had passed for them."""
    with psycopg.connect(url) as connection:
        connection.execute(
            "UPDATE topology.instance SET lease_end = lease_end - make_interval(secs => %s) "
            "WHERE id = ANY (%s)",
            (seconds, list(names)),
        )


def blocked_by(url: str, connection: Connection) -> None:
    """Return once another session waits for a lock of this connection's transaction."""
    pid = connection.info.backend_pid
    with psycopg.connect(url, autocommit=True) as looking:
        eventually(
            lambda: (
                looking.execute(
                    "SELECT FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))", (pid,)
                ).fetchone()
                is not None
            )
        )
