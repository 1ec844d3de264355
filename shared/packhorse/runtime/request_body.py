"""How much of a request body is taken, and how slowly it may come, counted as it arrives."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Request
from starlette.types import Message, Receive, Scope

from packhorse.runtime.problems import Problem

GRACE_S = 20.0
"""How long the server waits for a body, whatever its rate."""

MIN_BYTES_PER_S = 1024
"""The rate that a body must keep up after that."""

_DRAINED_BYTES = 64 * 1024
_DRAIN_S = 0.5

_KEY = "packhorse.body"


class RequestBody:
    """Wraps an ASGI `receive`; raises `Problem` 413 or 408 into whoever reads the body.

    Only the time that the server spends waiting for the client counts, not the time that it
    spends on what it has read.
    """

    def __init__(self, scope: Scope, receive: Receive, limit: int, grace_s: float) -> None:
        self._receive, self._limit, self._grace_s = receive, limit, grace_s
        self._announced = _announced_length(scope)
        self._asks = any(name == b"expect" for name, _ in scope["headers"])
        self._received = 0
        self._waited_s = 0.0
        self._complete = False
        scope[_KEY] = self

    def allow(self, limit: int) -> None:
        """Take up to `limit` bytes from now on."""
        self._limit = limit

    @property
    def unread(self) -> bool:
        """Whether the client may still be sending."""
        return not self._complete and self._announced != 0

    async def drain(self) -> None:
        """Take what a refused client is still sending, where that is little.

        A connection that is closed on unread bytes is reset, and the answer may be lost with it.
        What is large, slow or waits for a 100 stays unread.
        """
        if self._asks or self._announced is None or self._announced > _DRAINED_BYTES:
            return
        try:
            async with asyncio.timeout(_DRAIN_S):
                while self.unread:
                    message = await self._receive()
                    if message["type"] != "http.request":
                        return
                    self._complete = not message.get("more_body", False)
        except TimeoutError:
            return

    async def receive(self) -> Message:
        """Receive as ASGI has it."""
        if self._complete:
            return await self._receive()
        self._check(self._announced or 0)
        message = await self._receive_in_time()
        if message["type"] == "http.request":
            self._received += len(message.get("body", b""))
            self._check(self._received)
            self._complete = not message.get("more_body", False)
        return message

    async def _receive_in_time(self) -> Message:
        allowed = self._grace_s + self._received / MIN_BYTES_PER_S
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(allowed - self._waited_s):
                return await self._receive()
        except TimeoutError:
            raise Problem(408, detail=f"send at least {MIN_BYTES_PER_S} bytes a second") from None
        finally:
            self._waited_s += loop.time() - began

    def _check(self, length: int) -> None:
        if length > self._limit:
            raise Problem(413, detail=f"at most {self._limit} bytes are taken here")


def allow_body(limit: int) -> Callable[[Request], Awaitable[None]]:
    """Return a dependency that takes bodies of up to `limit` bytes on a route that streams them."""

    async def allow(request: Request) -> None:
        body: RequestBody = request.scope[_KEY]
        body.allow(limit)

    return allow


def _announced_length(scope: Scope) -> int | None:
    headers: Any = scope["headers"]
    chunked = any(name == b"transfer-encoding" for name, _ in headers)
    for name, value in headers:
        if name == b"content-length":
            return int(value) if value.isdigit() else None
    return None if chunked else 0
