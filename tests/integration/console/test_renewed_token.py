"""A visitor's access token at an identity provider that does not answer."""

import asyncio
import math
import time
from dataclasses import replace
from typing import Any

import httpx
import pytest

from packhorse.runtime.jwt_tokens import JwtVerifier
from packhorse_services.console.provider import (
    IdentityProvider,
    ProviderAway,
    ProviderSettings,
    RenewedToken,
    _Tokens,
)


class HangingProvider(IdentityProvider):
    """Answers a renewal once it is let."""

    def __init__(self) -> None:
        self.asked, self.let = asyncio.Event(), asyncio.Event()

    async def renewed(self, tokens: Any) -> Any:
        self.asked.set()
        await self.let.wait()
        return replace(tokens, access="second", due_at=math.inf)


def test_no_page_waits_for_a_renewal_while_the_token_lives() -> None:
    async def scenario() -> None:
        provider, now = HangingProvider(), time.monotonic()
        token = RenewedToken(provider, _Tokens("first", "r", now - 1, now + 3_600))
        assert [await token.current(), await token.current()] == ["first", "first"]
        await provider.asked.wait()
        provider.let.set()
        while await token.current() == "first":
            await asyncio.sleep(0)
        assert await token.current() == "second"

    asyncio.run(scenario())


def test_a_token_that_is_over_is_waited_for() -> None:
    async def scenario() -> None:
        provider, now = HangingProvider(), time.monotonic()
        token = RenewedToken(provider, _Tokens("first", "r", now - 2, now - 1))
        waiting = asyncio.create_task(token.current())
        await provider.asked.wait()
        assert not waiting.done()
        provider.let.set()
        assert await waiting == "second"

    asyncio.run(scenario())


@pytest.mark.parametrize("answers", [429, 503])
def test_a_provider_that_is_away_is_asked_once_for_all(answers: int) -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url)
        return httpx.Response(answers)

    async def scenario() -> None:
        settings = ProviderSettings("https://id.example", "c", "", "https://c.example", "", {})
        verifier = JwtVerifier("https://id.example/keys", issuer="https://id.example", audience="c")
        provider = IdentityProvider(settings, verifier)
        provider._http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
        for _ in range(3):
            with pytest.raises(ProviderAway, match=str(answers)):
                await provider.begin("")
        await provider.close()

    asyncio.run(scenario())
    assert len(asked) == 1
