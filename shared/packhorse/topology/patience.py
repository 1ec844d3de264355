"""Connections that give up on an answer: behind a proxy, a cut network looks like a long wait."""

from typing import Any, TypeVar

from psycopg.abc import PQGen
from psycopg_pool import ConnectionPool

from packhorse.db.connect import IDLE_S
from packhorse.db.engine import Timeouts, connection_arguments, conninfo
from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_always_as
from packhorse.db.session import SessionConnection

PATIENCE_S = 5.0
_POOL_SIZE = 4
IMPATIENT = {"connect_timeout": "5", "tcp_user_timeout": "5000"}
"""Of sessions that heartbeats need, whatever the database's URL allows others."""
_LIMITS = Timeouts(statement_ms=4_000, lock_ms=2_000, idle_in_transaction_ms=5_000)

_Answer = TypeVar("_Answer")


class PatientConnection(SessionConnection):
    """Raises a `psycopg.Error` for a statement that is not answered within `patience_s`."""

    patience_s = PATIENCE_S

    def wait(
        self, gen: PQGen[_Answer], interval: float = 0.1, timeout: float | None = None
    ) -> _Answer:
        """Wait as psycopg does, but not for ever."""
        return super().wait(gen, interval, self.patience_s if timeout is None else timeout)


PatientPool = ConnectionPool[PatientConnection]


def bookkeeper_connection(
    url: str, application: str, patience_s: float = PATIENCE_S, **settings: Any
) -> PatientConnection:
    """Return a connection of the bookkeeper's, on which each statement is its own transaction.

    `settings` go before those that all have.
    """
    connection = PatientConnection.connect(
        conninfo(url), autocommit=True, **_settings(url, application) | settings
    )
    connection.patience_s = patience_s
    try:
        act_always_as(connection, BOOKKEEPER)
    except BaseException:
        connection.close()
        raise
    return connection


def patient_pool(url: str, application: str) -> PatientPool:
    """Return a pool that connects when first used, and checks a connection before lending it."""
    pool = ConnectionPool(
        conninfo(url),
        connection_class=PatientConnection,
        kwargs=_settings(url, application),
        min_size=0,
        max_size=_POOL_SIZE,
        max_idle=IDLE_S,
        num_workers=1,
        timeout=PATIENCE_S,
        check=ConnectionPool.check_connection,
        open=False,
        name=application,
    )
    pool.open(wait=False)
    return pool


def _settings(url: str, application: str) -> Any:
    return connection_arguments(url, application) | {
        "session": _LIMITS.settings,
        **IMPATIENT,
    }
