"""Waiting that ends when the process is told to: open requests would hold it up."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

T = TypeVar("T")


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


async def unless_stopping(stopping: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Return what `work` returns; once `stopping` is set, cancel it and return None."""
    working, ending = asyncio.ensure_future(work), asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait((working, ending), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        ending.cancel()
        if working.cancel():
            with suppress(asyncio.CancelledError):
                await working
