"""An asynchronous connection in blocking code, whose caller is cancelled."""

import asyncio
import threading
from typing import Any, cast

import pytest
from psycopg import AsyncConnection, Connection

from packhorse.db.blocking import in_blocking_code


class Cursor:
    description = None
    rowcount = 0

    def __init__(self, seen: list[str]) -> None:
        self._seen = seen

    async def execute(self, query: str, _params: Any) -> None:
        self._seen.append(query)


class Connected:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def cursor(self) -> Cursor:
        return Cursor(self.seen)


def test_who_is_cancelled_has_its_connection_to_itself_again() -> None:
    connection, begun, go_on = Connected(), threading.Event(), threading.Event()

    def work(conn: Connection) -> None:
        conn.execute("first")
        begun.set()
        assert go_on.wait(120)
        conn.execute("second")

    async def scenario() -> None:
        doing = asyncio.ensure_future(
            in_blocking_code(cast(AsyncConnection, cast(object, connection)), work)
        )
        await asyncio.to_thread(begun.wait, 120)
        doing.cancel()
        await asyncio.sleep(0)
        assert not doing.done(), "the thread may be using the connection"
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await doing

    asyncio.run(scenario())
    assert connection.seen == ["first"]
