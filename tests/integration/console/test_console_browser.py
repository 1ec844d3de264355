"""The console in a real browser: a page that is followed, signing in and out, and the policy."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from packhorse_services.console.frame import rendering
from tests.harness.browser import PATIENCE_MS, send_from_elsewhere, signed_in, tab
from tests.harness.console import ConsoleSite, console_site
from tests.harness.console_sign_in import provided
from tests.harness.identity_provider import identity_provider
from tests.harness.topology.scripted import NUMBERS, Scripted, scripted
from tests.harness.topology.served import served

_INSERT = """([element, member, value]) =>
    document.body.append(Object.assign(document.createElement(element), {[member]: value}))"""
_INTRUDERS = [("script", "textContent", "alert(3)"), ("img", "src", "http://elsewhere.example/x")]
HOSTILE = "</dd><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7*7 }}"


@pytest.fixture
def made() -> Scripted:
    return scripted("other", own={"packhorse.agent": "main"}, cluster_view=NUMBERS)


@pytest.fixture
def site(made: Scripted) -> Iterator[ConsoleSite]:
    with served(made) as running, console_site(topology_urls={"author": running.url}) as console:
        yield console


def test_a_change_appears_without_a_reload(
    browser: Browser, site: ConsoleSite, made: Scripted
) -> None:
    with signed_in(browser, site.url, "topology", "viewer") as opened:
        page = opened.page
        page.evaluate("window.stillHere = true")
        made.membership.become("other", "third", "me")
        expect(page.locator("[data-instance=third]")).to_be_visible()
        expect(page.locator("[data-instance=other] .leader")).to_be_visible()
        expect(page.get_by_label("Last changes")).to_contain_text("third came")
        assert page.evaluate("window.stillHere")


def test_a_hostile_property_is_text(browser: Browser, site: ConsoleSite, made: Scripted) -> None:
    made.membership.describe("other", **{"note": HOSTILE, "packhorse.endpoint": "javascript:x()"})
    with signed_in(browser, site.url, "topology", "viewer") as opened:
        page = opened.page
        details = page.locator("[data-instance=other] details")
        expect(details).to_have_count(1)
        details.locator("summary").click()
        expect(details.locator("dd")).to_have_text(HOSTILE)
        made.membership.become("me", "other", "third")  # and after the part was replaced
        expect(page.locator("[data-instance=third]")).to_be_visible()
        expect(details.locator("dd")).to_have_text(HOSTILE)
        assert details.evaluate("one => one.open"), "what was opened stays open"
        assert page.locator("main script, main img, main [href^=javascript]").count() == 0


@pytest.mark.proof
def test_without_escaping_it_would_be_noticed_and_would_not_run(
    browser: Browser, site: ConsoleSite, made: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checker that can't fail is none: the same on a build that escapes nothing."""
    careless = rendering.TEMPLATES.overlay(autoescape=False)
    monkeypatch.setattr(rendering, "TEMPLATES", careless)
    made.membership.describe("other", note=HOSTILE)
    with tab(browser) as opened:
        page = opened.page
        page.goto(f"{site.url}/pages/topology")
        page.fill("#token", "viewer")
        page.click("main button")
        expect(page.locator("main img")).not_to_have_count(0)
        expect(page.locator("#state")).to_have_text("live")
        assert any("Content Security Policy" in one for one in opened.complaints)
        assert opened.dialogs == []


def test_the_policy_would_stop_what_got_in(browser: Browser, site: ConsoleSite) -> None:
    """A checker that can't fail is none: a breach is a complaint."""
    with tab(browser) as opened:
        opened.page.goto(f"{site.url}/pages/sign-in")
        for element, member, value in _INTRUDERS:
            with opened.page.expect_console_message(
                lambda said: "Content Security Policy" in said.text, timeout=PATIENCE_MS
            ):
                opened.page.evaluate(_INSERT, [element, member, value])
        assert len(opened.complaints) >= 2
        assert opened.dialogs == []


def test_it_is_dark_where_that_is_preferred(browser: Browser, site: ConsoleSite) -> None:
    with tab(browser) as opened:
        page = opened.page
        page.goto(f"{site.url}/pages/sign-in")
        reds = {}
        for scheme in ("dark", "light"):  # the next tab is light, as it was
            page.emulate_media(color_scheme=scheme)
            color = page.evaluate("getComputedStyle(document.body).backgroundColor")
            reds[scheme] = int(color.removeprefix("rgb(").partition(",")[0])
        assert reds["dark"] < 64 <= reds["light"]
        assert opened.complaints == []


def test_the_filter_is_in_the_address(browser: Browser, site: ConsoleSite) -> None:
    with signed_in(browser, site.url, "topology", "viewer") as opened:
        page = opened.page
        page.fill("[name=find]", "OTHER")
        page.click("[role=search] button")
        expect(page).to_have_url(f"{site.url}/pages/topology?find=OTHER")
        expect(page.locator("[data-instance=other]")).to_be_visible()
        expect(page.locator("[data-instance=me]")).to_have_count(0)
        expect(page.locator("#state")).to_have_text("live")
        expect(page.locator("[data-instance=me]")).to_have_count(0)


def test_signing_in_goes_on_to_what_was_wanted_and_gives_no_script_the_token(
    browser: Browser, site: ConsoleSite
) -> None:
    with tab(browser) as opened:
        page = opened.page
        page.goto(f"{site.url}/pages/topology?find=%26other+%22%3Cb%3E")
        page.fill("#token", "viewer")
        page.click("main button")
        expect(page.locator("[name=find]")).to_have_value('&other "<b>')
        assert page.evaluate("document.cookie") == ""
        [cookie] = page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (
            True,
            "Strict",
            "/pages",
        )
        assert page.request.post(f"{site.url}/pages/sign-in-links").status == 401, "not for the API"
        page.get_by_role("button", name="Sign out").click()
        expect(page.locator("h1")).to_have_text("Sign in")
        assert page.context.cookies() == []
        page.goto(f"{site.url}/pages/topology")
        expect(page.locator("h1")).to_have_text("Sign in")
        assert opened.complaints == []


def test_a_token_that_is_taken_back_ends_the_page(browser: Browser, site: ConsoleSite) -> None:
    with signed_in(browser, site.url, "topology", "viewer") as opened:
        del site.callers.known["viewer"]
        expect(opened.page.locator("h1")).to_have_text("Sign in")


def test_a_service_that_is_away_is_said_to_be(browser: Browser, made: Scripted) -> None:
    with (
        served(made) as running,
        console_site(topology_urls={"author": running.url}) as site,
        signed_in(browser, site.url, "topology", "viewer") as opened,
    ):
        expect(opened.page.locator("#state")).to_have_text("live")
        running.end()
        expect(opened.page.locator("#state")).to_contain_text("not live")
        opened.complaints.clear()  # the browser's word for 503


def test_another_site_can_neither_sign_in_nor_out(browser: Browser, site: ConsoleSite) -> None:
    with tab(browser) as opened:
        send_from_elsewhere(opened, site.url, "sign-in", token="viewer")
        assert opened.page.context.cookies() == []
        assert "must be sent from a page of this service" in opened.text()


def test_a_browser_comes_back_from_the_other_site_signed_in(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A strict cookie is not sent where another site leads to, so a page of ours leads on."""
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")
    with (
        identity_provider() as issuer,
        provided(issuer, f"{issuer}/jwks") as site,
        tab(browser) as opened,
    ):
        page = opened.page
        page.goto(f"{site.url}/pages/overview?find=sub")
        page.get_by_role("link", name="Sign in with your account").click()
        page.fill("[name=login]", "anna")
        page.fill("[name=password]", "any")
        page.locator("[type=submit]").click()
        page.locator("[type=submit]").click()
        expect(page.locator("h1")).to_have_text("Overview")
        assert page.url == f"{site.url}/pages/overview?find=sub"
        assert [one["sameSite"] for one in page.context.cookies(f"{site.url}/pages")] == ["Strict"]
        page.get_by_role("button", name="Sign out").click()
        page.locator("[name=logout]").first.click()  # the provider asks whether it is meant
        expect(page.locator("h1")).to_have_text("Sign in")
        assert page.url.startswith(f"{site.url}/pages/sign-in")
        page.get_by_role("link", name="Sign in with your account").click()
        expect(page.locator("[name=login]")).to_be_visible()
        # The provider's own pages load fonts from elsewhere, and have no icon.
        assert not [one for one in opened.complaints if "Failed to load resource" not in one]
