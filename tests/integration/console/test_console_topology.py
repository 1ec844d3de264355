"""The page of the topology in a real browser, and signing in to it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect

from packhorse_services.console.frame.rendering import PAGES
from packhorse_services.topology.connectors.states import ConnectorPhase, ConnectorState
from tests.harness.browser import Tab, sign_in, tab
from tests.harness.console import ConsoleSite, console_site
from tests.harness.topology.scripted import NUMBERS, Scripted, cluster, scripted
from tests.harness.topology.served import served

_PATIENCE_MS = 60_000
expect.set_options(timeout=_PATIENCE_MS)

_INSERT = """([element, member, value]) =>
    document.body.append(Object.assign(document.createElement(element), {[member]: value}))"""
_INTRUDERS = [("script", "textContent", "alert(3)"), ("img", "src", "http://elsewhere.example/x")]
HOSTILE = "</dd><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7*7 }}"
FAILED = ConnectorState(
    direction="out",
    state=ConnectorPhase.FAILED,
    url="http://peer.example/topology/connector",
    holder="me",
    instance_id="",
    cluster_id="",
    address="",
    last_exchange_ms=1_700_000_000_000,
    next_exchange_in_s=30.0,
    interval_s=30.0,
    reason="nobody answers",
)


@pytest.fixture
def made() -> Scripted:
    return scripted("other", own={"packhorse.agent": "main"}, cluster_view=NUMBERS)


@pytest.fixture
def site(made: Scripted) -> Iterator[ConsoleSite]:
    with served(made) as running, console_site(topology_urls={"author": running.url}) as console:
        yield console


@contextmanager
def signed_in(browser: Browser, site: ConsoleSite, **context: Any) -> Iterator[Tab]:
    with tab(browser, **context) as opened:
        sign_in(opened, site.url, "viewer")
        opened.page.goto(f"{site.url}/pages/topology")
        expect(opened.page.locator("h1")).to_have_text("Topology")
        opened.page.wait_for_load_state()  # the style may come after the text
        yield opened
        assert opened.complaints == []
        assert opened.dialogs == []


def test_after_signing_in_everything_is_there(
    browser: Browser, site: ConsoleSite, made: Scripted
) -> None:
    made.remotes.views = [cluster("x", name="remote-1", properties={"x": {"rack": "9"}})]
    made.membership.wake()
    made.connectors.append(FAILED)
    with signed_in(browser, site) as opened:
        page = opened.page
        expect(page.locator("[data-instance=me] .leader")).to_have_text("leader")
        expect(page.locator("[data-instance=me]")).to_contain_text("main")
        expect(page.locator("[data-instance=x]")).to_be_visible()
        expect(page.locator("[data-connector=out]")).to_contain_text("nobody answers")
        expect(page.locator("[data-connector=out]")).to_contain_text("failed")
        expect(page.get_by_label("Cluster view")).to_contain_text("seq")
        expect(page.get_by_label("Last changes")).to_contain_text("init")
        expect(page.locator("#state")).to_have_text("live")


def test_a_change_appears_without_a_reload(
    browser: Browser, site: ConsoleSite, made: Scripted
) -> None:
    with signed_in(browser, site) as opened:
        page = opened.page
        page.evaluate("window.stillHere = true")
        made.membership.become("other", "third", "me")
        expect(page.locator("[data-instance=third]")).to_be_visible()
        expect(page.locator("[data-instance=other] .leader")).to_be_visible()
        expect(page.get_by_label("Last changes")).to_contain_text("third came")
        assert page.evaluate("window.stillHere")


def test_a_hostile_property_is_text(browser: Browser, site: ConsoleSite, made: Scripted) -> None:
    made.membership.describe("other", **{"note": HOSTILE, "packhorse.endpoint": "javascript:x()"})
    with signed_in(browser, site) as opened:
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
    careless = PAGES.templates.overlay(autoescape=False)
    monkeypatch.setattr(PAGES, "templates", careless)
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
                lambda said: "Content Security Policy" in said.text, timeout=_PATIENCE_MS
            ):
                opened.page.evaluate(_INSERT, [element, member, value])
        assert len(opened.complaints) >= 2
        assert opened.dialogs == []


@pytest.mark.parametrize(("scheme", "is_dark"), [("dark", True), ("light", False)])
def test_it_is_dark_where_that_is_preferred(
    browser: Browser, site: ConsoleSite, scheme: str, is_dark: bool
) -> None:
    with signed_in(browser, site, color_scheme=scheme) as opened:
        color = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
        red = int(color.removeprefix("rgb(").partition(",")[0])
        assert (red < 64) is is_dark


def test_the_filter_is_in_the_address(browser: Browser, site: ConsoleSite) -> None:
    with signed_in(browser, site) as opened:
        page = opened.page
        page.fill("[name=find]", "OTHER")
        page.click("[role=search] button")
        assert page.url.endswith("?find=OTHER")
        expect(page.locator("[data-instance=other]")).to_be_visible()
        expect(page.locator("[data-instance=me]")).to_have_count(0)
        expect(page.locator("#state")).to_have_text("live")
        expect(page.locator("[data-instance=me]")).to_have_count(0)


def test_signing_in_goes_on_to_the_page_that_was_wanted(
    browser: Browser, site: ConsoleSite
) -> None:
    with tab(browser) as opened:
        opened.page.goto(f"{site.url}/pages/topology?find=%26other+%22%3Cb%3E")
        opened.page.fill("#token", "viewer")
        opened.page.click("main button")
        expect(opened.page.locator("[name=find]")).to_have_value('&other "<b>')
        assert opened.complaints == []


def test_no_script_has_the_token_and_it_ends_with_signing_out(
    browser: Browser, site: ConsoleSite
) -> None:
    with signed_in(browser, site) as opened:
        page = opened.page
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


def test_a_token_that_is_taken_back_ends_the_page(browser: Browser, site: ConsoleSite) -> None:
    with signed_in(browser, site) as opened:
        del site.callers.known["viewer"]
        expect(opened.page.locator("h1")).to_have_text("Sign in")


def test_a_service_that_is_away_is_said_to_be(browser: Browser, made: Scripted) -> None:
    with (
        served(made) as running,
        console_site(topology_urls={"author": running.url}) as site,
        signed_in(browser, site) as opened,
    ):
        expect(opened.page.locator("#state")).to_have_text("live")
        running.end()
        expect(opened.page.locator("#state")).to_contain_text("not live")
        opened.complaints.clear()  # the browser's word for 503


@pytest.mark.parametrize(
    ("token", "says"), [("nonsense", "No such token"), ("editor", "queues:read")]
)
def test_a_wrong_token_is_reported(
    browser: Browser, site: ConsoleSite, token: str, says: str
) -> None:
    with tab(browser) as opened:
        opened.page.goto(f"{site.url}/pages/sign-in")
        opened.page.fill("#token", token)
        opened.page.click("main button")
        expect(opened.page.get_by_role("alert")).to_contain_text(says)
        assert opened.page.context.cookies() == []


def test_another_site_can_neither_sign_in_nor_out(browser: Browser, site: ConsoleSite) -> None:
    other = site.url.replace("127.0.0.1", "localhost")
    with tab(browser) as opened:
        opened.page.goto(f"{other}/livez")
        opened.page.evaluate(
            """url => {
              const form = document.createElement('form');
              Object.assign(form, {method: 'post', action: url});
              form.append(Object.assign(document.createElement('input'),
                                        {name: 'token', value: 'viewer'}));
              document.body.append(form);
              setTimeout(() => form.submit(), 0);
            }""",
            f"{site.url}/pages/sign-in",
        )
        opened.page.wait_for_url(f"{site.url}/pages/sign-in")
        assert opened.page.context.cookies() == []
        assert "must be sent from a page of this service" in opened.text()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://elsewhere.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 303),
    ],
)
def test_the_form_says_where_it_comes_from(
    site: ConsoleSite, headers: dict[str, str], status: int
) -> None:
    form = {"token": "viewer", "next": "//elsewhere.example"}
    answer = httpx.post(f"{site.url}/pages/sign-in", data=form, headers=headers, timeout=120)
    assert answer.status_code == status
    assert answer.headers.get("location", "/pages/overview") == "/pages/overview"


def test_a_form_is_short(site: ConsoleSite) -> None:
    headers = {"Sec-Fetch-Site": "same-origin"}
    form = {"token": "x" * 64 * 1024}
    answer = httpx.post(f"{site.url}/pages/sign-in", data=form, headers=headers, timeout=120)
    assert answer.status_code == 413


def test_behind_an_encrypted_connection_the_cookie_is_for_such_only(site: ConsoleSite) -> None:
    host = site.url.removeprefix("http://")
    answer = httpx.post(
        f"{site.url}/pages/sign-in",
        data={"token": "viewer"},
        headers={"Origin": f"https://{host}"},
        timeout=120,
    )
    assert "; Secure" in answer.headers["set-cookie"]
