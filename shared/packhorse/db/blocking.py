"""An asynchronous connection as blocking code sees it, so that such code exists once."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Self, TypeVar, cast

import anyio
import anyio.from_thread
import anyio.to_thread
from psycopg import AsyncConnection, AsyncCursor, Connection, OperationalError
from psycopg.adapt import AdaptersMap

T = TypeVar("T")

_THREADS = anyio.CapacityLimiter(8)
"""Threads of its own: who waits for a store that hangs holds no connection meanwhile (R33)."""


async def in_blocking_code(conn: AsyncConnection, work: Callable[[Connection], T]) -> T:
    """Return what `work` returns: it runs in a thread, its statements in `conn`'s transaction.

    It may call `execute`, `cursor` and `pipeline`; a result has all rows at once.
    """
    view = _BlockingConnection(conn)
    running = asyncio.ensure_future(
        anyio.to_thread.run_sync(work, cast(Connection, view), limiter=_THREADS)
    )
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        view.close()
        with anyio.CancelScope(shield=True), suppress(BaseException):
            await running  # until then the thread may be using the connection
        raise


class _BlockingConnection:
    def __init__(self, conn: AsyncConnection) -> None:
        self._conn, self._closed = conn, False

    def close(self) -> None:
        """Run no further statement: whoever waited for the work is gone."""
        self._closed = True

    def execute(self, query: Any, params: Any = None) -> "_BlockingCursor":
        return self.cursor().execute(query, params)

    def cursor(self, **options: Any) -> "_BlockingCursor":
        if self._closed:
            raise OperationalError("the request was cancelled")
        return _BlockingCursor(self._conn.cursor(**options))

    def pipeline(self) -> AbstractContextManager[None]:
        """Do without: each statement waits for its result."""
        return nullcontext()


class _BlockingCursor:
    def __init__(self, cursor: AsyncCursor[Any]) -> None:
        self._cursor = cursor
        self._rows: list[Any] = []

    @property
    def adapters(self) -> AdaptersMap:
        return self._cursor.adapters

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    def execute(self, query: Any, params: Any = None) -> Self:
        self._rows = anyio.from_thread.run(self._execute, query, params)
        return self

    async def _execute(self, query: Any, params: Any) -> list[Any]:
        await self._cursor.execute(query, params)
        return await self._cursor.fetchall() if self._cursor.description else []

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)

    def fetchall(self) -> list[Any]:
        return self._rows

    def fetchone(self) -> Any:
        return self._rows[0] if self._rows else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        anyio.from_thread.run(self._cursor.close)
