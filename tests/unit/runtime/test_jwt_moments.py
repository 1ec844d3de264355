"""JWTs over time: clocks that differ a little, keys that are new, and keys that are withdrawn."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from packhorse.runtime import jwt_tokens
from packhorse.runtime.auth import Authenticator
from packhorse.runtime.jwt_tokens import JwtVerifier, KeysUnavailable
from tests.harness.clock import ManualClock
from tests.unit.runtime.issuer import AUDIENCE, NAME, Issuer, running_issuer


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with running_issuer() as issuer:
        yield issuer


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def verifier(issuer: Issuer, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> JwtVerifier:
    for patience in ("_FETCH_TIMEOUT_S", "_PATIENCE_S"):  # the issuer's thread may be late
        monkeypatch.setattr(jwt_tokens, patience, 120)
    return JwtVerifier(issuer.url, issuer=NAME, audience=AUDIENCE, clock=clock)


def test_a_clock_that_is_a_little_off_refuses_nobody(issuer: Issuer, verifier: JwtVerifier) -> None:
    now = int(time.time())
    for claims in ({"exp": now - 1}, {"nbf": now + 20}):
        assert asyncio.run(verifier.principal(issuer.token(**claims)))


def test_who_comes_with_a_new_key_waits_for_the_issuer(
    issuer: Issuer, verifier: JwtVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jwt_tokens, "_PATIENCE_S", 0)
    assert asyncio.run(verifier.principal(issuer.token()))


def test_a_withdrawn_key_is_refused_once_the_keys_are_old(
    issuer: Issuer, verifier: JwtVerifier, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asyncio.run(verifier.principal(issuer.token("rsa")))
    monkeypatch.setattr(issuer, "published", {"ec"})
    clock.advance(301)
    assert asyncio.run(verifier.principal(issuer.token("rsa"))) is None


def test_keys_that_cannot_be_fetched_are_a_warning_until_they_can(
    issuer: Issuer, verifier: JwtVerifier, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    authenticator = Authenticator(verifier)
    authenticator.check()
    monkeypatch.setattr(issuer, "broken", True)
    with pytest.raises(KeysUnavailable):
        asyncio.run(authenticator.principal(issuer.token()))
    with pytest.raises(KeysUnavailable, match="500"):
        authenticator.check()
    monkeypatch.setattr(issuer, "broken", False)
    clock.advance(11)
    assert asyncio.run(authenticator.principal(issuer.token()))
    authenticator.check()
