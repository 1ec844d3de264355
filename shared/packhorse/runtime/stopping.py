"""Hearing that the process is told to end: requests that wait would hold it up."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress


@asynccontextmanager
async def telling(stopping: asyncio.Event, tell: Callable[[], None]) -> AsyncIterator[None]:
    """Call `tell` when `stopping` is set inside the block."""

    async def watch() -> None:
        await stopping.wait()
        tell()

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
