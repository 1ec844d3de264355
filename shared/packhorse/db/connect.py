"""psycopg connections and pools with the settings that every packhorse session has.

Queries are SQL text on psycopg: pipeline mode, COPY and array parameters are what the hot paths
need. SQLAlchemy describes the tables for the migrations' sake (`db.metadata`).
"""

from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from packhorse.db.engine import DEFAULT_TIMEOUTS, Timeouts, conninfo, session_settings


def connect(
    url: str, application: str, *, timeouts: Timeouts = DEFAULT_TIMEOUTS, autocommit: bool = False
) -> psycopg.Connection:
    """Return a new connection. Raises `psycopg.OperationalError` when the server is away."""
    settings: Any = session_settings(application, timeouts)
    return psycopg.connect(conninfo(url), autocommit=autocommit, **settings)


def open_pool(
    url: str, application: str, *, timeouts: Timeouts = DEFAULT_TIMEOUTS, size: int = 4
) -> ConnectionPool[psycopg.Connection]:
    """Return a pool that connects when first used, and checks a connection before lending it."""
    pool = ConnectionPool(
        conninfo(url),
        kwargs=dict(session_settings(application, timeouts)),
        min_size=0,
        max_size=size,
        timeout=10,
        check=ConnectionPool.check_connection,
        open=False,
        name=application,
    )
    pool.open(wait=False)
    return pool


@dataclass(frozen=True)
class ClosesPool:
    """A component, to be started before everybody who uses the pool: it closes it after them."""

    pool: ConnectionPool[psycopg.Connection]

    def start(self) -> None:
        """Do nothing: a pool connects when first used."""

    def stop(self, timeout: float) -> None:
        """Close the pool."""
        self.pool.close(timeout)


def ask(pool: ConnectionPool[psycopg.Connection]) -> None:
    """Return when the database answers, for readiness. Raises what borrowing a connection does."""
    with pool.connection() as connection:
        connection.execute("SELECT 1")


def async_pool(
    url: str, application: str, *, timeouts: Timeouts = DEFAULT_TIMEOUTS, size: int = 8
) -> AsyncConnectionPool[psycopg.AsyncConnection]:
    """Return an unopened pool for routes; the app's lifespan awaits its `open` and `close`."""
    return AsyncConnectionPool(
        conninfo(url),
        kwargs=dict(session_settings(application, timeouts)),
        min_size=0,
        max_size=size,
        timeout=10,
        check=AsyncConnectionPool.check_connection,
        open=False,
        name=application,
    )
