"""A visitor's access token at an identity provider that does not answer."""

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest

from packhorse_services.console import provider as provider_module
from packhorse_services.console.provider import (
    IdentityProvider,
    ProviderAway,
    RenewedToken,
    _Tokens,
)
from packhorse_services.console.settings import Settings

ISSUER = "https://id.example"


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


def answered_by(answer: Callable[[httpx.Request], httpx.Response]) -> IdentityProvider:
    console = "https://c.example"
    settings = Settings(
        publisher_urls={"main": console},
        console_url=console,
        oidc_client_id="c",
        jwks_url=f"{ISSUER}/keys",
        jwt_issuer=ISSUER,
        jwt_audience="c",
    )
    provider = IdentityProvider(settings)
    provider._http = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    return provider


@pytest.mark.parametrize(
    ("known", "way_out"),
    [
        (
            {"end_session_endpoint": f"{ISSUER}/out?realm=web"},
            f"{ISSUER}/out?realm=web&id_token_hint=t&client_id=c"
            "&post_logout_redirect_uri=https%3A%2F%2Fc.example%2Fpages%2Fsign-in",
        ),
        ({}, ""),
        ({"end_session_endpoint": "http://id.example/out"}, ""),
        ({"issuer": "https://other.example", "end_session_endpoint": f"{ISSUER}/out"}, ""),
    ],
)
def test_the_way_out_is_the_one_that_the_provider_names(
    known: dict[str, str], way_out: str
) -> None:
    async def scenario() -> None:
        provider = answered_by(lambda _: httpx.Response(200, json={"issuer": ISSUER, **known}))
        assert await RenewedToken(provider, _Tokens("a"), "t").way_out() == way_out
        await provider.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("answers", [429, 503])
def test_a_provider_that_is_away_is_asked_once_for_all(
    answers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_module, "_REST_S", 600.0)
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url)
        return httpx.Response(answers)

    async def scenario() -> None:
        provider = answered_by(answer)
        for _ in range(3):
            with pytest.raises(ProviderAway, match=str(answers)):
                await provider.begin("")
        await provider.close()

    asyncio.run(scenario())
    assert len(asked) == 1
