"""Serving an app on loopback inside a test, by the protocol that the programs use."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from packhorse.runtime.connection import BoundedProtocol
from packhorse.runtime.open_connections import OpenConnections

Address = tuple[str, int]


@asynccontextmanager
async def serving(app: Any, among: OpenConnections | None = None) -> AsyncIterator[Address]:
    """Give the address at which `app` is served, without its lifespan.

    Without `among` each connection is one of none.
    """
    config = uvicorn.Config(app, log_config=None, lifespan="off")
    config.load()
    state = ServerState()
    server = await asyncio.get_running_loop().create_server(
        lambda: BoundedProtocol(config=config, server_state=state, app_state={}, among=among),
        "127.0.0.1",
        0,
    )
    try:
        yield server.sockets[0].getsockname()
    finally:
        server.close()
        for connection in list(state.connections):
            connection.transport.abort()
        await server.wait_closed()


async def received_after(address: Address, *segments: bytes, answers: int = 1) -> bytes:
    """Send segments one by one, wait for so many answers, then end; return all that came back."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        for segment in segments:
            writer.write(segment)
            await writer.drain()
            await asyncio.sleep(0.02)  # so that the next one is a segment of its own
        received = b""
        async with asyncio.timeout(120):
            while received.count(b"HTTP/1.1 ") < answers and (more := await reader.read(65536)):
                received += more
            with suppress(OSError):  # the server has closed it already
                writer.write_eof()
                received += await reader.read()
            return received
    finally:
        writer.close()
