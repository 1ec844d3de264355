"""Signing out of the console, for who has signed in at a real identity provider."""

import html
import re
from urllib.parse import parse_qsl, urlsplit

import jwt
import pytest

from tests.harness.console import console_site
from tests.harness.console_sign_in import SETTINGS, begun, browser, provided
from tests.harness.identity_provider import identity_provider, signs_in
from tests.harness.written_publisher import written_publisher


def test_it_ends_the_session_here_and_leads_to_the_provider(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")
    with (
        identity_provider() as issuer,
        provided(issuer, f"{issuer}/jwks") as site,
        browser() as opened,
    ):
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
