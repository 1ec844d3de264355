"""The other services, asked with the token of whoever looks at a page; the console has none.

So a page shows and does what its visitor could do with the command line, and nothing more.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import parse_qs, urlsplit

from packhorse.client.addresses import Addresses
from packhorse.client.awaiting import AsyncClient
from packhorse.client.errors import ClientError
from packhorse.runtime.principal import Principal
from packhorse.runtime.problems import Problem

T = TypeVar("T")

_AT_A_TIME = 8
"""Requests that one page has under way."""


@dataclass(frozen=True, slots=True)
class Answered(Generic[T]):
    """What one of several answered, or why it did not."""

    name: str
    value: T | None
    error: str = ""


class Publishers:
    """The publishers by the names of their agents."""

    def __init__(self, urls: Mapping[str, str], timeout_s: float) -> None:
        self.urls = urls
        self._clients = {
            agent: AsyncClient.of(Addresses({"publisher": url}), timeout=timeout_s)
            for agent, url in urls.items()
        }

    def agents_of(self, who: Principal) -> list[str]:
        """Return the agents that a visitor may deal with."""
        return [agent for agent in self.urls if who.may_deal_with(agent)]

    def client(self, agent: str, token: str | None) -> AsyncClient:
        """Return a client of an agent's publisher with a visitor's rights. Raises `Problem` 404."""
        if agent not in self._clients:
            raise Problem(404, detail="the console knows no publisher agent of this name")
        return self._clients[agent].acting_for(token)

    async def close(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            await client.close()


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
