"""psycopg connections and pools with the settings that every packhorse session has.

Queries are SQL text on psycopg: pipeline mode, COPY and array parameters are what the hot paths
need. SQLAlchemy describes the tables for the migrations' sake (`db.metadata`).
"""

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
