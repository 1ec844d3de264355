"""Connections and pools with the settings that every packhorse session has.

Queries are SQL text on psycopg: pipeline mode, COPY and array parameters are what the hot paths
need. SQLAlchemy describes the tables, and composes searches on them (`db.composed`).
"""

import random
from typing import Any

import psycopg
from psycopg import errors
from psycopg_pool import AsyncConnectionPool

from packhorse.db.engine import DEFAULT_TIMEOUTS, Timeouts, connection_arguments, conninfo
from packhorse.db.session import AsyncSessionConnection, SessionConnection

PATIENCE_S = 10.0
"""How long a borrower waits for a connection of a pool."""
IDLE_S = 10.0
"""So often a pool gives back a connection that nobody has needed meanwhile."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0

AWAY = (
    *(psycopg.OperationalError, psycopg.InterfaceError, errors.ReadOnlySqlTransaction),
    *(errors.IdleInTransactionSessionTimeout, errors.TransactionTimeout),
)
"""What may be gone at the next try: the database is away, is read-only, or has ended the session.

psycopg calls the last three faults of the program, not of the surroundings.
"""


def connect(
    url: str, application: str, *, timeouts: Timeouts = DEFAULT_TIMEOUTS, autocommit: bool = False
) -> SessionConnection:
    """Return a new connection. Raises `psycopg.OperationalError` when the server is away."""
    return SessionConnection.connect(
        conninfo(url), autocommit=autocommit, **_arguments(url, application, timeouts)
    )


def retry_pause_s(failures: int) -> float:
    """Return how long to wait after so many failures in a row: doubling with each, jittered."""
    longest = min(_FIRST_PAUSE_S * 2.0 ** min(failures - 1, 10), _LONGEST_PAUSE_S)
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - no secret


def async_pool(url: str, application: str) -> AsyncConnectionPool[psycopg.AsyncConnection]:
    """Return an unopened pool for routes; the app's lifespan awaits its `open` and `close`."""
    return AsyncConnectionPool(
        conninfo(url),
        connection_class=AsyncSessionConnection,
        kwargs=_arguments(url, application, DEFAULT_TIMEOUTS),
        min_size=0,
        max_size=8,
        max_idle=IDLE_S,
        timeout=PATIENCE_S,
        check=AsyncConnectionPool.check_connection,
        open=False,
        name=application,
    )


def _arguments(url: str, application: str, timeouts: Timeouts) -> dict[str, Any]:
    return connection_arguments(url, application) | {"session": timeouts.settings}
