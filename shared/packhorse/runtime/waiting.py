"""Requests that wait for something: of a number of their own, and no longer than their clients."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

from packhorse.runtime.places import leave, shares_of, who
from packhorse.runtime.problems import Problem

Result = TypeVar("Result")


@asynccontextmanager
async def turn(
    places: asyncio.Semaphore, patience_s: float, busy: Exception
) -> AsyncIterator[None]:
    """Lend one of few places to what holds a thread or a connection for long.

    Others wait here, where they hold nothing. Raises `busy` when none is free for `patience_s`.
    """
    try:
        async with asyncio.timeout(patience_s):
            await places.acquire()
    except TimeoutError as error:
        raise busy from error
    try:
        yield
    finally:
        places.release()


class TooManyWaits(Problem):
    """The caller has as many requests that wait as it may, or all have: 429."""


async def waited(request: Request, wait: Callable[[], Awaitable[Result]]) -> Result:
    """Return what `wait` gives; it is cancelled when the client goes.

    The request takes no place from those that are worked on. Raises `TooManyWaits`, and
    `ClientDisconnect` when the client went first.
    """
    places, by = shares_of(request.scope).waits, who(request.scope)
    try:
        places.take(by)
    except Problem as problem:
        raise TooManyWaits(429, detail=problem.detail) from None
    leave(request.scope)
    try:
        return await _unless_gone(request, wait)
    finally:
        places.give_back(by)


async def _unless_gone(request: Request, wait: Callable[[], Awaitable[Result]]) -> Result:
    waiting, watching = asyncio.ensure_future(wait()), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((waiting, watching), return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise ClientDisconnect
        return waiting.result()
    finally:
        for task in (waiting, watching):
            task.cancel()
        await asyncio.gather(waiting, watching, return_exceptions=True)


async def _gone(request: Request) -> None:
    """Return when the client has gone. What it sends meanwhile is the body, and passed over."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
