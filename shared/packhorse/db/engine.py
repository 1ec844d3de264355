"""Where a database is, and the settings that every packhorse session has.

Sessions are named, and no statement, lock wait or idle transaction lasts for ever: a paused
process must not hold a lock longer than its lease.
"""

from dataclasses import dataclass

import psycopg
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from packhorse.errors import Permanent

_MAX_PORT = 65_535
_BACKENDS = ("postgresql", "postgres")
_NOTICING = {
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}


class BadDatabaseUrl(Permanent):
    """The URL can't be that of a database; the text quotes nothing of it."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Limits of one session, in milliseconds; 0 means none."""

    statement_ms: int = 60_000
    lock_ms: int = 10_000
    idle_in_transaction_ms: int = 30_000

    @property
    def settings(self) -> dict[str, str]:
        """The server's settings that hold these limits."""
        return {
            "statement_timeout": str(self.statement_ms),
            "lock_timeout": str(self.lock_ms),
            "idle_in_transaction_session_timeout": str(self.idle_in_transaction_ms),
        }


DEFAULT_TIMEOUTS = Timeouts()


def conninfo(url: str) -> str:
    """Return the URL as libpq and psycopg want it, to whom a + in a setting is no space."""
    text = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    place, mark, settings = text.partition("?")
    return place + mark + settings.replace("+", "%20")


def check_database_url(url: str) -> None:
    """Raise `BadDatabaseUrl` for what libpq would never connect to; nothing is connected to."""
    try:
        parsed = make_url(url)
        said = conninfo_to_dict(conninfo(url))
        numbers = all(str(said.get(name, 0)).isdecimal() for name in _NOTICING)
        port = parsed.port if numbers and parsed.get_backend_name() in _BACKENDS else 0
    except (ArgumentError, ValueError, psycopg.ProgrammingError):
        port = 0
    if port is not None and not 0 < port <= _MAX_PORT:  # its own words would quote the password
        raise BadDatabaseUrl(
            "a database's URL is postgresql://user:password@host:port/database, with settings of "
            "libpq behind a ?, timeouts among them as whole numbers; a special character in it is "
            "percent-encoded"
        )


def connection_arguments(url: str, application: str) -> dict[str, str]:
    """Return libpq's arguments that name a session and notice a server that is gone.

    What the URL itself says of the latter wins. None of them is a startup parameter that PgBouncer
    refuses: limits are set once connected.
    """
    said = conninfo_to_dict(conninfo(url))
    noticing = {name: value for name, value in _NOTICING.items() if name not in said}
    return {"application_name": application, **noticing}
