"""Engines with the settings that every packhorse connection has.

Sessions are named, and no statement, lock wait or idle transaction lasts for ever: a paused
process must not hold a lock longer than its lease (reliability: U4).
"""

from dataclasses import dataclass

import psycopg
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import Engine, create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from packhorse.errors import Permanent

_MAX_PORT = 65_535


class BadDatabaseUrl(Permanent):
    """The URL can't be that of a database; the text quotes nothing of it."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Limits of one session, in milliseconds; 0 means none."""

    statement_ms: int = 60_000
    lock_ms: int = 10_000
    idle_in_transaction_ms: int = 30_000


DEFAULT_TIMEOUTS = Timeouts()


def sqlalchemy_url(url: str) -> str:
    """Return `postgresql://…` as SQLAlchemy wants it for psycopg 3, other URLs unchanged."""
    parsed = make_url(url)
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    return parsed.render_as_string(hide_password=False)


def conninfo(url: str) -> str:
    """Return the URL as libpq and psycopg want it."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def check_database_url(url: str) -> None:
    """Raise `BadDatabaseUrl` for what libpq would never connect to; nothing is connected to."""
    try:
        port = make_url(url).port
        conninfo_to_dict(conninfo(url))
    except (ArgumentError, ValueError, psycopg.ProgrammingError):
        port = 0
    if port is not None and not 0 < port <= _MAX_PORT:  # its own words would quote the password
        raise BadDatabaseUrl(
            "a database's URL is postgresql://user:password@host:port/database, with settings of "
            "libpq behind a ?; a special character in it is percent-encoded"
        )


def session_settings(application: str, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> dict[str, str]:
    """Return the connection arguments that name a session and bound what it may wait for."""
    options = {
        "statement_timeout": timeouts.statement_ms,
        "lock_timeout": timeouts.lock_ms,
        "idle_in_transaction_session_timeout": timeouts.idle_in_transaction_ms,
    }
    return {
        "application_name": application,
        "options": " ".join(f"-c {name}={value}" for name, value in options.items()),
        "connect_timeout": "5",
        "keepalives_idle": "10",
        "keepalives_interval": "5",
        "keepalives_count": "3",
        "tcp_user_timeout": "20000",
    }


def open_engine(
    url: str,
    application: str,
    *,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
    pool_size: int = 5,
) -> Engine:
    """Return a pooled engine; connections are made when first needed, and checked before use."""
    return create_engine(
        sqlalchemy_url(url),
        connect_args=session_settings(application, timeouts),
        pool_size=pool_size,
        max_overflow=0,
        pool_pre_ping=True,
        pool_timeout=10,
    )
