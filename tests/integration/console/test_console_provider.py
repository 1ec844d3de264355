"""Signing in and out at an identity provider: a real one, and answers that an attacker forged."""

import html
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx
import jwt
import pytest

from packhorse.runtime import audit
from packhorse_services.console import provider
from tests.harness.console import ConsoleSite, console_site
from tests.harness.console_sign_in import SETTINGS, begun, browser, provided
from tests.harness.identity_provider import identity_provider, signs_in
from tests.harness.waiting import eventually
from tests.harness.written_publisher import WrittenPublisher, written_publisher
from tests.unit.runtime.issuer import Issuer


@pytest.fixture(scope="module", autouse=True)
def _all_is_on_loopback() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")
        yield


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    with identity_provider() as running:
        yield running


@pytest.fixture(scope="module")
def site(issuer: str) -> Iterator[ConsoleSite]:
    with provided(issuer, f"{issuer}/jwks") as served:
        yield served


def test_an_account_signs_in_and_acts_under_its_own_name(
    site: ConsoleSite, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, audit.LOGGER)
    with browser() as opened:
        form = opened.get(f"{site.url}/pages/sign-in?next=/pages/overview?find=sub")
        assert 'href="/pages/sign-in/provider?next=/pages/overview%3Ffind%3Dsub"' in form.text
        back = signs_in(opened, begun(opened, site), "anna").headers["location"]
        done = opened.get(back)
        assert 'content="0; url=/pages/overview?find=sub"' in done.text
        assert "SameSite=strict" in done.headers["set-cookie"]
        page = opened.get(f"{site.url}/pages/overview")
        assert 'data-queue="sub1"' in page.text
        assert ">anna<" in page.text, "not the subject, which says nothing"
        again = opened.get(back)
        assert again.status_code == 401, "what came back is good once"
    with browser() as other:
        assert other.get(back).status_code == 401, "and in the browser that began"
    claims = next(
        jwt.decode((token or "").split()[1], options={"verify_signature": False})
        for _, path, token, _ in site.publisher.requested
        if path == "/queues"
    )
    assert (claims["preferred_username"], claims["aud"]) == ("anna", "packhorse")
    lines = eventually(lambda: signed_in_lines(caplog), what="the line of signing in")
    assert lines
    assert (lines[0]["caller"], lines[0]["outcome"]) == ("anna", "DONE")


def test_a_token_is_renewed_until_the_provider_refuses(site: ConsoleSite, issuer: str) -> None:
    with browser() as opened:
        opened.get(signs_in(opened, begun(opened, site), "rosa").headers["location"])
        site.publisher.requested.clear()

        def tokens() -> set[str | None]:
            opened.get(f"{site.url}/pages/overview")
            return {token for _, _, token, _ in site.publisher.requested}

        eventually(lambda: len(tokens()) >= 2, what="another token is sent")
        httpx.post(f"{issuer}/lock/rosa", timeout=120)
        part = f"{site.url}/pages/overview/content"
        eventually(lambda: opened.get(part).status_code == 401, what="the session is over")


def signed_in_lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    lines = [vars(one) for one in caplog.records if one.name == audit.LOGGER]
    return [one for one in lines if one["object"] == "/pages/sign-in/provider/done"]


def test_an_account_without_the_scope_is_told_so(site: ConsoleSite) -> None:
    with browser() as opened:
        back = signs_in(opened, begun(opened, site), "ben").headers["location"]
        answer = opened.get(back)
    assert answer.status_code == 401
    assert "does not have the scope queues:read" in answer.text
    assert "packhorse_overview" not in answer.headers["set-cookie"]


@pytest.mark.parametrize("wanted", ["//evil.example", "https://evil.example", "/pages\\evil", "/x"])
def test_it_leads_to_no_other_site(site: ConsoleSite, wanted: str) -> None:
    with browser() as opened:
        back = signs_in(opened, begun(opened, site, wanted), "anna").headers["location"]
        assert 'content="0; url=/pages/overview"' in opened.get(back).text


def test_signing_out_ends_the_session_here_and_leads_to_the_provider(
    site: ConsoleSite, issuer: str
) -> None:
    with browser() as opened:
        opened.get(signs_in(opened, begun(opened, site), "anna").headers["location"])
        copied = {"Cookie": f"packhorse_overview={opened.cookies['packhorse_overview']}"}
        answers = [
            opened.post(
                f"{site.url}/pages/sign-out",
                data={"from": "a page"},
                headers={"Sec-Fetch-Site": sent_from},
            )
            for sent_from in ("cross-site", "same-origin", "same-origin")
        ]
        assert [one.status_code for one in answers] == [403, 200, 303]
        there = html.unescape(re.findall(r'content="0; url=([^"]+)"', answers[1].text)[0])
        asked = dict(parse_qsl(urlsplit(there).query))
        assert there.startswith(f"{issuer}/session/end?")
        assert asked["post_logout_redirect_uri"] == f"{site.url}/pages/sign-in"
        claims = jwt.decode(asked["id_token_hint"], options={"verify_signature": False})
        assert (claims["aud"], claims["sub"]) == ("console", "anna")
        assert site.get("overview", None, **copied).status_code == 303, (
            "its cookie is worth nothing"
        )
        assert "form" in opened.get(there).text


@dataclass
class Forger:
    """A provider whose answers the test forges; `asked` is what the browser was sent with."""

    site: ConsoleSite
    provider: WrittenPublisher
    keys: Issuer
    browser: httpx.Client
    asked: dict[str, str]
    besides: dict[str, Any] = field(default_factory=dict)

    def claims(self, **other: Any) -> dict[str, Any]:
        own = {"iss": self.provider.url, "aud": "console", "nonce": self.asked["nonce"]}
        return {**own, **other}

    def returns(self, id_token: str | None = None, **query: str) -> httpx.Response:
        """Come back with a code, for which the provider gives this token."""
        access = self.claims(aud="packhorse", preferred_username="anna", groups=["annas"])
        tokens = {"access_token": self.keys.token(**access), "token_type": "Bearer"}
        tokens["id_token"] = self.keys.token(**self.claims()) if id_token is None else id_token
        self.provider.answers["POST /token"] = {**tokens, **self.besides}
        given = {"state": self.asked["state"], "code": "c1", **query}
        return self.browser.get(f"{self.site.url}/pages/sign-in/provider/done?{urlencode(given)}")


@pytest.fixture(scope="module")
def forged() -> Iterator[tuple[ConsoleSite, WrittenPublisher, Issuer]]:
    with written_publisher() as provider, provided(provider.url, f"{provider.url}/jwks") as site:
        keys = Issuer()
        provider.answers["GET /jwks"] = keys.jwks()
        provider.answers["GET /.well-known/openid-configuration"] = {
            "issuer": provider.url,
            "authorization_endpoint": f"{provider.url}/auth",
            "token_endpoint": f"{provider.url}/token",
        }
        yield site, provider, keys


@pytest.fixture
def forger(forged: tuple[ConsoleSite, WrittenPublisher, Issuer]) -> Iterator[Forger]:
    with browser() as opened:
        asked = dict(parse_qsl(urlsplit(begun(opened, forged[0])).query))
        yield Forger(*forged, opened, asked)


def test_the_code_is_asked_for_and_exchanged_as_it_should_be(forger: Forger) -> None:
    assert forger.asked["code_challenge_method"] == "S256"
    assert forger.asked["response_type"] == "code"
    assert forger.returns(iss=forger.provider.url).status_code == 200
    [sent] = [body for method, _, _, body in forger.provider.requested if method == "POST"][-1:]
    assert sent["code_verifier"] not in forger.asked.values()
    assert (sent["code"], sent["grant_type"]) == ("c1", "authorization_code")


FORGERIES: dict[str, Callable[[Forger], str]] = {
    "another sign-in's nonce": lambda one: one.keys.token(**one.claims(nonce="other")),
    "no nonce": lambda one: one.keys.token(**one.claims(nonce=None)),
    "another client's": lambda one: one.keys.token(**one.claims(aud="other")),
    "an access token": lambda one: one.keys.token(**one.claims(aud="packhorse")),
    "another issuer's": lambda one: one.keys.token(**one.claims(iss="https://evil.example")),
    "expired": lambda one: one.keys.token(**one.claims(exp=1)),
    "another key": lambda one: Issuer().token(**one.claims()),
    "alg none": lambda one: jwt.encode(
        {**one.claims(), "sub": "x", "exp": 2**40}, None, "none", headers={"kid": "rsa"}
    ),
    "none at all": lambda _: "",
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_identity_signs_nobody_in(forger: Forger, forgery: str) -> None:
    answer = forger.returns(FORGERIES[forgery](forger))
    assert answer.status_code == 401
    assert "packhorse_overview" not in answer.headers["set-cookie"]


@pytest.mark.parametrize(
    "query",
    [
        {"state": "other"},
        {"state": ""},
        {"state": "é"},
        {"code": ""},
        {"iss": "https://evil.example"},
        {"error": "<script>alert(1)</script>"},
    ],
)
def test_a_forged_way_back_signs_nobody_in(forger: Forger, query: dict[str, str]) -> None:
    exchanged = len(forger.provider.requested)
    answer = forger.returns(**query)
    assert answer.status_code == 401
    assert "<script>" not in answer.text.partition("<main")[2]
    assert len(forger.provider.requested) == exchanged, "no code is spent"


def test_a_planted_session_or_sign_in_is_not_taken_over(forger: Forger) -> None:
    """What another browser began, or a cookie that nobody sealed, is worth nothing here."""
    for planted in ("guessed", "", "gAAAA"):
        forger.browser.cookies.clear()
        forger.browser.cookies.set("packhorse_signing_in", planted)
        assert forger.returns().status_code == 401


def test_a_provider_without_encryption_is_not_used(
    forger: Forger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OAUTHLIB_INSECURE_TRANSPORT")
    answer = httpx.get(f"{forger.site.url}/pages/sign-in/provider", timeout=120)
    assert (answer.status_code, "can&#39;t be used" in answer.text) == (401, True)


def test_a_provider_that_refuses_or_is_away_is_said_to(forger: Forger) -> None:
    forger.provider.answers["POST /token"] = {"error": "invalid_grant"}
    query = urlencode({"state": forger.asked["state"], "code": "c1"})
    answer = forger.browser.get(f"{forger.site.url}/pages/sign-in/provider/done?{query}")
    assert (answer.status_code, "gives no token" in answer.text) == (401, True)
    with provided("http://127.0.0.1:1", "http://127.0.0.1:1") as lonely:
        answer = httpx.get(f"{lonely.url}/pages/sign-in/provider", timeout=120)
    assert "the identity provider does not answer" in answer.text


def test_a_provider_that_is_away_is_left_alone_and_the_token_goes_on(
    forger: Forger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider, "_REST_S", 600.0)
    forger.besides = {"expires_in": 1, "refresh_token": "r1"}
    assert forger.returns().status_code == 200
    forger.provider.answers["POST /token"] = (503, {})
    requested = len(forger.provider.requested)

    def asked() -> int:
        assert forger.browser.get(f"{forger.site.url}/pages/overview").status_code == 200
        return len(forger.provider.requested) - requested

    eventually(lambda: asked() == 1, what="the provider is asked")
    assert [asked(), asked()] == [1, 1]


def test_over_https_what_is_under_way_is_in_a_cookie_that_no_other_host_sets() -> None:
    with written_publisher() as provider:
        endpoint = f"{provider.url}/auth"
        known = {"issuer": provider.url, "authorization_endpoint": endpoint}
        provider.answers["GET /.well-known/openid-configuration"] = known
        url = "https://packhorse.example"
        settings = {**SETTINGS, "console_url": url, "jwks_url": f"{provider.url}/jwks"}
        with (
            pytest.MonkeyPatch.context() as patch,
            console_site(jwt_issuer=provider.url, **settings) as site,
            browser() as opened,
        ):
            patch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")
            cookie = opened.get(f"{site.url}/pages/sign-in/provider").headers["set-cookie"]
    assert cookie.startswith("__Host-packhorse_signing_in=")
    assert all(one in cookie for one in ("HttpOnly", "Path=/;", "SameSite=lax", "Secure"))
