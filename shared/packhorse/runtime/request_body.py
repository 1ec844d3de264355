"""How much of a request body is taken, and how slowly it may come, counted as it arrives."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from fastapi import Request
from starlette.types import Message, Receive, Scope

from packhorse.runtime.limits import DEFAULT_LIMITS, ServiceLimits
from packhorse.runtime.places import Shares, Who, who
from packhorse.runtime.problems import Problem

_DRAINED_BYTES = 64 * 1024
_DRAIN_S = 0.5

_KEY = "packhorse.body"


class RequestBody:
    """Wraps an ASGI `receive`; raises `Problem` 413 or 408 into whoever reads the body.

    Only the time that the server spends waiting for the client counts, not the time that it
    spends on what it has read. A body under way, and the bytes of one that is held in memory,
    count as its caller's until `release`.
    """

    def __init__(
        self, scope: Scope, receive: Receive, limits: ServiceLimits = DEFAULT_LIMITS
    ) -> None:
        self._scope, self._receive, self._limits = scope, receive, limits
        self._limit = limits.body_bytes
        headers = dict(scope["headers"])
        self._announced = _announced_length(headers)
        self._asks = b"expect" in headers
        self._received = 0
        self._waited_s = 0.0
        self._complete = False
        self._by: Who = ""
        self._under_way = False
        self._held = 0
        self._shares: Shares | None = None
        scope[_KEY] = self

    def allow(self, limit: int) -> None:
        """Take up to `limit` bytes from now on."""
        self._limit = limit

    def share(self, shares: Shares) -> None:
        """Count against what all requests share from now on."""
        self._shares = shares

    def release(self) -> None:
        """Give back what it took: the request has ended."""
        self._arrived()
        if self._shares is not None and self._held:
            self._shares.held.give_back(self._by, self._held)
            self._held = 0

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
        self._begin()
        message = await self._receive_in_time()
        if message["type"] == "http.request":
            self._received += len(message.get("body", b""))
            self._check(self._received)
            self._hold(len(message.get("body", b"")))
            self._complete = not message.get("more_body", False)
            if self._complete:
                self._arrived()
                self._check_arrived()
        return message

    def _begin(self) -> None:
        if self._shares is not None and not self._by and self._announced != 0:
            by = who(self._scope)
            self._shares.bodies.take(by)
            self._by, self._under_way = by, True

    def _hold(self, length: int) -> None:
        """Count what is held in memory; routes that take larger bodies stream them."""
        if self._shares is not None and length and self._limit <= self._limits.body_bytes:
            self._shares.held.take(self._by, length)
            self._held += length

    def _arrived(self) -> None:
        if self._shares is not None and self._under_way:
            self._shares.bodies.give_back(self._by)
            self._under_way = False

    async def _receive_in_time(self) -> Message:
        allowed = self._limits.body_grace_s + self._received / self._limits.body_rate
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(allowed - self._waited_s):
                return await self._receive()
        except TimeoutError:
            rate = self._limits.body_rate
            raise Problem(408, detail=f"send at least {rate} bytes a second") from None
        finally:
            self._waited_s += loop.time() - began

    def _check_arrived(self) -> None:
        announced = self._announced
        if announced is not None and self._received != announced:
            detail = f"Content-Length announces {announced} bytes, and {self._received} came"
            raise Problem(400, detail=detail)

    def _check(self, length: int) -> None:
        if length > self._limit:
            raise Problem(
                413,
                detail=f"at most {self._limit} bytes are taken here; send several requests, and "
                "put what is large into a binary",
            )


def allow_body(limit: int) -> Callable[[Request], Awaitable[None]]:
    """Return a dependency that takes bodies of up to `limit` bytes on a route that streams them."""

    async def allow(request: Request) -> None:
        body: RequestBody = request.scope[_KEY]
        body.allow(limit)

    return allow


def _announced_length(headers: Mapping[bytes, bytes]) -> int | None:
    value = headers.get(b"content-length")
    if value is not None:
        return int(value) if value.isdigit() else None
    return None if b"transfer-encoding" in headers else 0
