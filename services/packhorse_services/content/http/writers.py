"""Connections for those who write content, who may wait long for the lock of the tree's shape."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import LiteralString

from psycopg import AsyncConnection
from psycopg_pool import PoolTimeout

from packhorse.content.queries import Pool
from packhorse.content.tree import SHAPE_KEPT
from packhorse.db.connect import PATIENCE_S
from packhorse.runtime.waiting import turn


class Writers:
    """Leaves half of a pool's connections to those who read, whatever writers wait for (R33)."""

    def __init__(self, pool: Pool) -> None:
        self._pool, self._most = pool, pool.max_size // 2
        self._places = asyncio.Semaphore(self._most)

    @asynccontextmanager
    async def transaction(self, lock: LiteralString = SHAPE_KEPT) -> AsyncIterator[AsyncConnection]:
        """Give a transaction that writes content, under a lock of its shape.

        Raises `PoolTimeout` when others write for too long.
        """
        busy = PoolTimeout(f"{self._most} others have written for {PATIENCE_S} s")
        async with turn(self._places, PATIENCE_S, busy), self._pool.connection() as conn:
            await conn.execute(lock + "; SET LOCAL ROLE packhorse_importer")  # one exchange
            yield conn
