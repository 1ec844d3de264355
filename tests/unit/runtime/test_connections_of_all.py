"""What connections tell of themselves, so that there is room for others and nobody takes it all."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from packhorse.runtime.open_connections import OpenConnections
from packhorse.runtime.places import SURPLUS
from tests.unit.runtime.serving import serving

_MOST = 3
"""Of all; of one address two thirds."""


class _App:
    """Answers when it may; 429 where only a probe would be answered."""

    def __init__(self) -> None:
        self.begun = asyncio.Semaphore(0)
        self.may_answer = asyncio.Event()

    async def __call__(
        self, scope: Any, _receive: Any, send: Callable[[Any], Awaitable[None]]
    ) -> None:
        self.begun.release()
        await self.may_answer.wait()
        status, headers = 429 if scope[SURPLUS] else 200, [(b"content-length", b"0")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body"})


class _Client:
    """A connection that asks."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def ask(self) -> None:
        self._writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")

    async def status(self) -> int:
        """Return the status of the next answer; 0 when the connection is closed instead."""
        line = await self._reader.readline()
        if line:
            await self._reader.readuntil(b"\r\n\r\n")
        return int(line.split()[1]) if line else 0

    async def asked(self) -> int:
        self.ask()
        return await self.status()

    def go(self) -> None:
        self._writer.transport.abort()


Connect = Callable[..., Awaitable[_Client]]


@asynccontextmanager
async def _served() -> AsyncIterator[tuple[_App, Connect]]:
    """Serve the app; give it, and what connects from a host and lets go in the end."""
    app, clients = _App(), list[_Client]()
    async with asyncio.timeout(120), serving(app, OpenConnections(_MOST)) as address:

        async def connected(host: str = "127.0.0.1") -> _Client:
            streams = await asyncio.open_connection(*address, local_addr=(host, 0))
            clients.append(_Client(*streams))
            return clients[-1]

        try:
            yield app, connected
        finally:
            for one in clients:
                one.go()


def test_who_has_its_answer_makes_room_for_who_comes() -> None:
    async def play() -> None:
        async with _served() as (app, connected):
            app.may_answer.set()
            clients = []
            for _ in range(_MOST):
                clients.append(await connected())
                assert await clients[-1].asked() == 200
            assert await clients[0].status() == 0, "it was silent for longest"
            assert await clients[1].asked() == 200

    asyncio.run(play())


def test_who_comes_by_another_address_takes_no_room_of_this_one() -> None:
    async def play() -> None:
        async with _served() as (app, connected):
            app.may_answer.set()
            clients = [await connected() for _ in range(_MOST - 1)]
            assert [await one.asked() for one in clients] == [200, 200]
            assert await (await connected("127.0.0.2")).asked() == 200
            assert [await one.asked() for one in clients] == [200, 200]

    asyncio.run(play())


def test_while_an_address_has_its_share_under_way_only_probes_of_it_are_answered() -> None:
    async def play() -> None:
        async with _served() as (app, connected):
            clients = []
            for _ in range(_MOST):
                clients.append(await connected())
                clients[-1].ask()
                await app.begun.acquire()
            app.may_answer.set()
            assert [await one.status() for one in clients] == [200, 200, 429]

    asyncio.run(play())


def test_who_has_gone_takes_no_room() -> None:
    async def play() -> None:
        async with _served() as (app, connected):
            for _ in range(_MOST):
                client = await connected()
                client.ask()
                await app.begun.acquire()
                client.go()
            app.may_answer.set()
            while await (await connected()).asked() != 200:
                pass  # the server has not noticed yet

    asyncio.run(play())
