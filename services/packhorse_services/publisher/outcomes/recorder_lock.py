"""The recorder lock: the one replica that holds it keeps an agent's outcomes.

It is a session lock of Postgres on a connection of its own, over which everything is written. A
holder that was paused for too long has lost the session, and so can write nothing any more.
"""

from collections.abc import Callable

from psycopg import Connection

_IDLE = "90s"


class RecorderLock:
    """One replica's side of the lock. Used by one thread."""

    def __init__(self, agent: str, open_connection: Callable[[], Connection]) -> None:
        self._agent, self._open = agent, open_connection
        self._connection: Connection | None = None
        self._held = False

    def acquire(self) -> Connection | None:
        """Return the connection that holds the lock, in autocommit; None when another does.

        Raises `psycopg.Error` when the database is away.
        """
        if self._connection is None or self._connection.closed:
            self._connection, self._held = self._open(), False
        if not self._held:
            row = self._connection.execute(
                "SELECT set_config('idle_session_timeout', %s, false) "
                "WHERE pg_try_advisory_lock(hashtextextended('packhorse outcomes ' || %s, 0))",
                (_IDLE, self._agent),
            ).fetchone()
            self._held = row is not None
        return self._connection if self._held else None

    def release(self) -> None:
        """Let another replica have it."""
        connection, self._connection, self._held = self._connection, None, False
        if connection is not None:
            connection.close()
