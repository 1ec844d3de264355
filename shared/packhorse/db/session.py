"""psycopg connections whose limits are in force, directly and behind a pooler in session mode."""

from collections.abc import Mapping
from typing import Any, Self

from psycopg import AsyncConnection, Connection

from packhorse.db.engine import DEFAULT_TIMEOUTS

_DEFAULTS: Mapping[str, str] = DEFAULT_TIMEOUTS.settings


class SessionConnection(Connection[Any]):
    """A connection that sets the server's settings itself, in one statement, before any other.

    Settings given as libpq's `options` are refused by PgBouncer, or dropped without a word.
    """

    server_pid: int = 0
    """The server's process: behind a pooler, `info.backend_pid` is the pooler's invention."""

    @classmethod
    def connect(  # type: ignore[override]  # psycopg's other arguments pass through
        cls,
        conninfo: str = "",
        *,
        autocommit: bool = False,
        session: Mapping[str, str] = _DEFAULTS,
        **arguments: Any,
    ) -> Self:
        """Connect as psycopg does, with `session` as the session's settings."""
        connection = super().connect(conninfo, autocommit=True, **arguments)
        try:
            row: Any = connection.execute(*_setting(session)).fetchone()
            connection.server_pid = row[0]
            connection.autocommit = autocommit
        except BaseException:
            connection.close()
            raise
        return connection


class AsyncSessionConnection(AsyncConnection[Any]):
    """The same for routes."""

    @classmethod
    async def connect(  # type: ignore[override]
        cls,
        conninfo: str = "",
        *,
        autocommit: bool = False,
        session: Mapping[str, str] = _DEFAULTS,
        **arguments: Any,
    ) -> Self:
        """Connect as psycopg does, with `session` as the session's settings."""
        connection = await super().connect(conninfo, autocommit=True, **arguments)
        try:
            await connection.execute(*_setting(session))
            await connection.set_autocommit(autocommit)
        except BaseException:
            await connection.close()
            raise
        return connection


def _setting(session: Mapping[str, str]) -> tuple[bytes, list[str]]:
    calls = b"".join(b", set_config(%s, %s, false)" for _ in session)
    return b"SELECT pg_backend_pid()" + calls, [word for pair in session.items() for word in pair]
