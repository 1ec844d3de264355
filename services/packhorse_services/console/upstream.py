"""The other services, asked with the token of whoever looks at a page; the console has none.

So a page shows and does what its visitor could do with the command line, and nothing more.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qs, urlsplit

import httpx

from packhorse.client.addresses import Addresses
from packhorse.client.awaiting import AsyncClient
from packhorse.client.errors import ClientError, NoAnswer, NoAnswerInTime
from packhorse.client.exchange import Effect, Request, ServiceName
from packhorse.client.problems import Words
from packhorse.runtime.problems import Problem

T = TypeVar("T")

_AT_A_TIME = 8
"""Requests that one page has under way."""
_KEPT_S, _MOST_KEPT = 30.0, 200
_PATIENCE_S = 3.0
"""A page that shows the present waits no longer for the past."""
_SILENT_S, _LIVES_S = 1.0, 3.0
"""A service that has been silent is asked whether it lives; a busy one has time to say so."""
_WHY = "its process is stopped, or has too much to do"
_WORDS = Words(address="its URL in this console's settings")


@dataclass(frozen=True, slots=True)
class Answered(Generic[T]):
    """What one of several answered, or why it did not."""

    name: str
    value: T | None
    error: str = ""


class _ImpatientClient(AsyncClient):
    """Waits up to the time-out for a long answer of a service that lives, and 4 s for any other.

    Its errors name the kind of the service that does not answer.
    """

    async def _done(self, effect: Effect) -> Any:
        if not isinstance(effect, Request):
            return await super()._done(effect)
        answer = asyncio.create_task(super()._done(effect))
        try:
            await asyncio.wait({answer}, timeout=_SILENT_S)
            if answer.done() or await self._lives(effect) or answer.done():
                return await answer
            url = self._targets.of(effect).url
            raise NoAnswerInTime(f"{url} does not even say that it lives: {_WHY}")
        except NoAnswer as error:
            raise type(error)(f"the {effect.service} service: {error}", error.key) from error
        finally:
            answer.cancel()

    async def _lives(self, request: Request) -> bool:
        """Return whether a service answers anything at all: its process may be stopped."""
        try:
            url = f"{self._targets.of(request).url}/livez"
            await self._http.get(url, timeout=_LIVES_S)
        except httpx.HTTPError:
            return False
        return True


class Services:
    """Services of one kind, by the names that pages know them by."""

    def __init__(self, kind: ServiceName, urls: Mapping[str, str], timeout_s: float) -> None:
        self.urls, self._kind = urls, kind
        self._clients = {
            name: _ImpatientClient.of(Addresses({kind: url}), timeout=timeout_s, words=_WORDS)
            for name, url in urls.items()
        }

    def client(self, name: str, token: str | None) -> AsyncClient:
        """Return a client of a service with a visitor's rights. Raises `Problem` 404."""
        if name not in self._clients:
            raise Problem(404, detail=f"the console knows no {self._kind} service of this name")
        return self._clients[name].acting_for(token)

    async def close(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            await client.close()


class Remembered:
    """What services say of the past, kept for half a minute for all visitors.

    Ask only for a visitor whom the service has just shown the present, by the same right.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[object, ...], tuple[float, Any]] = {}

    async def get(self, key: tuple[object, ...], ask: Callable[[], Awaitable[T]]) -> T | None:
        """Return what is kept, or what is answered; None where a service has no answer."""
        until, known = self._kept.get(key, (0.0, None))
        if until <= time.monotonic():
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    known = await ask()
            except (ClientError, TimeoutError):
                known = None
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[key] = time.monotonic() + _KEPT_S, known
        found: T | None = known
        return found


def cursor_of(url: str | None) -> str:
    """Return the cursor in the URL of a next page; empty at the end."""
    return parse_qs(urlsplit(url or "").query).get("cursor", [""])[0]


async def each(names: Sequence[str], ask: Callable[[str], Awaitable[T]]) -> list[Answered[T]]:
    """Ask several, a few at a time; one that fails leaves the others' answers as they are."""
    places = asyncio.Semaphore(_AT_A_TIME)

    async def one(name: str) -> Answered[T]:
        async with places:
            try:
                return Answered(name, await ask(name))
            except ClientError as error:
                return Answered(name, None, str(error))

    return await asyncio.gather(*map(one, names))
