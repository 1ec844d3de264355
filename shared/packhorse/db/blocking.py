"""An asynchronous connection as blocking code sees it, so that such code exists once."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self, TypeVar, cast

import anyio.from_thread
import anyio.to_thread
from psycopg import AsyncConnection, AsyncCursor, Connection
from psycopg.adapt import AdaptersMap

T = TypeVar("T")


async def in_blocking_code(conn: AsyncConnection, work: Callable[[Connection], T]) -> T:
    """Return what `work` returns: it runs in a thread, its statements in `conn`'s transaction.

    It may call `execute`, `cursor` and `pipeline`; a result has all rows at once.
    """
    view = cast(Connection, _BlockingConnection(conn))
    return await anyio.to_thread.run_sync(work, view)


class _BlockingConnection:
    def __init__(self, conn: AsyncConnection) -> None:
        self._conn = conn

    def execute(self, query: Any, params: Any = None) -> "_BlockingCursor":
        return self.cursor().execute(query, params)

    def cursor(self, **options: Any) -> "_BlockingCursor":
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
