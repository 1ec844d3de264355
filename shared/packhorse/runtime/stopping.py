"""Noticing that the process is asked to end: requests that wait would hold it up."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress


@asynccontextmanager
async def calling_at_stop(stopping: asyncio.Event, call: Callable[[], None]) -> AsyncIterator[None]:
    """Call `call` when `stopping` is set inside the block."""

    async def watch() -> None:
        await stopping.wait()
        call()

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
