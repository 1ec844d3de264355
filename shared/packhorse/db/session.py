"""psycopg connections whose limits are in force, directly and behind a pooler in session mode."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Self

import psycopg
from psycopg import AsyncConnection, Connection, Pipeline
from psycopg.abc import RV, PQGen
from psycopg.generators import send
from psycopg.pq import TransactionStatus

from packhorse.db.engine import DEFAULT_TIMEOUTS

_DEFAULTS: Mapping[str, str] = DEFAULT_TIMEOUTS.settings
_ACTIVE = TransactionStatus.ACTIVE


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

    def wait(self, gen: PQGen[RV], *args: Any, **kwargs: Any) -> RV:
        """Wait as psycopg does, and close a connection whose socket was lost in a statement.

        Where the socket reports an error and nothing to read, libpq sees none: the connection
        would refuse all that follows, and yet say that it is not closed.
        """
        try:
            return super().wait(gen, *args, **kwargs)
        except psycopg.OperationalError as error:
            in_use = self.pgconn.pipeline_status or self.pgconn.transaction_status == _ACTIVE
            if in_use and type(error) is psycopg.OperationalError and error.sqlstate is None:
                self.pgconn.finish()
                with suppress(Exception):  # it would send the rest of a pipeline, and cannot
                    gen.close()
            raise

    @contextmanager
    def pipeline(self) -> Iterator[Pipeline]:
        """Send the statements of the block together; limits on idle sessions hold behind it."""
        if self._pipeline is None and not self.closed:
            self._pipeline = _SyncedPipeline(self)
        with super().pipeline() as pipeline:
            yield pipeline


class _SyncedPipeline(Pipeline):
    """A pipeline whose last message is a Sync, at which the server starts to count idle time.

    psycopg sends a Flush behind it, at which the server counts no more, and no limit comes.
    """

    def _exit_gen(self) -> PQGen[None]:
        try:
            self._enqueue_sync()
            yield from self._communicate_gen()
        finally:
            yield from send(self.pgconn)
            yield from self._fetch_gen(flush=False)

    def _exit(self, exc: BaseException | None) -> None:
        """End the pipeline, or the connection, where the server ended it in the middle.

        libpq stays busy with what was not answered, and would say that it is not closed.
        """
        try:
            super()._exit(exc)
        finally:
            if self.level == 0 and self.pgconn.pipeline_status:
                self.pgconn.finish()


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
