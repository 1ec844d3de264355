"""The console's live page over HTTP: the publisher's events as rows."""

import json
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.harness.browser import signed_in
from tests.harness.console import HOSTILE, ConsoleSite
from tests.harness.waiting import eventually
from tests.harness.written_publisher import AT, Held, Pages, entry

AWAY = (503, {"type": "/problems/unavailable", "title": "It is starting", "status": 503})
_UNKNOWN = {"type": "/problems/unknown-subscriber", "title": "No such subscriber", "status": 404}
REFUSAL = (404, _UNKNOWN)
_COUNTS = """window.streams = 0;
window.EventSource = class extends EventSource {
    constructor(url) { super(url); window.streams += 1; }
};"""
POSITION = b"id: p1-s2-e3\nretry: 200\n: events follow\n\n"


@pytest.fixture
def site(running: ConsoleSite) -> ConsoleSite:
    running.publisher.forget()
    happened(running, ("package", entry(41)), ("status", failed()))
    return running


def blocks(*events: tuple[str, Any]) -> bytes:
    """Return events, and that who has read them may come back soon."""
    found = [
        f"event: {kind}\nid: {number}\nretry: 200\ndata: {json.dumps(data)}\n\n"
        for number, (kind, data) in enumerate(events, 1)
    ]
    return "".join(found).encode()


def happened(site: ConsoleSite, *events: tuple[str, Any]) -> None:
    site.publisher.answers["GET /events"] = blocks(*events)


def failed(**more: str) -> dict[str, Any]:
    shown = {"subscriber": "sub1", "offset": 41, "status": "REMOVED_FAILED", "reason": "disk full"}
    return {**shown, "package_id": "p41", "time": AT, **more}


def test_events_are_rows_with_what_they_came_from(site: ConsoleSite) -> None:
    package, status = site.stream("live/events?kind=status&subscriber=sub1&after=p7", 2)
    assert (package.event, package.id, status.id) == ("row", "1", "2")
    assert "/site/news" in package.data
    assert "disk full" in status.data
    assert "subscriber=sub1" in status.data, "the way to its queue"
    asked = site.publisher.requested[0]
    assert asked[1:3] == ("/events?types=status&subscriber=sub1", "Bearer operator")


def test_where_the_stream_is_comes_before_the_first_event(site: ConsoleSite) -> None:
    site.publisher.answers["GET /events"] = POSITION + blocks(("package", entry(41)))
    position, package = site.stream("live/events", 2)
    assert (position.event, position.id) == ("position", "p1-s2-e3")
    assert (package.event, package.id) == ("row", "1")


def test_a_publisher_that_is_away_ends_the_stream_and_says_so(site: ConsoleSite) -> None:
    site.publisher.answers["GET /events"] = Pages([blocks(("package", entry(41))), AWAY])
    package, said = site.stream("live/events", 3)
    assert (package.event, said.event, "It is starting" in said.data) == ("row", "away", True)


def test_whoever_leaves_gives_the_publishers_stream_back(site: ConsoleSite) -> None:
    site.publisher.answers["GET /events"] = Held(POSITION + blocks(("package", entry(41))))
    for shown in [1, 2] * 10:
        site.stream("live/events", shown)
    eventually(lambda: not site.publisher.held)


def test_the_page_is_live_again_once_the_publisher_is_there(
    browser: Browser, site: ConsoleSite
) -> None:
    site.publisher.answers["GET /events"] = AWAY
    with signed_in(browser, site.url, "live") as opened:
        page = opened.page
        expect(page.locator("#state")).to_contain_text("not live: It is starting")
        site.publisher.answers["GET /events"] = POSITION
        expect(page.locator("#state")).to_have_text("live")
        with page.expect_request(lambda asked: "after=p1-s2-e3" in asked.url):
            page.evaluate("() => document.dispatchEvent(new Event('visibilitychange'))")


def test_the_page_does_not_ask_again_for_what_is_refused_for_good(
    browser: Browser, site: ConsoleSite
) -> None:
    site.publisher.answers["GET /events"] = REFUSAL
    with signed_in(browser, site.url, "distribute") as opened:
        page = opened.page
        page.clock.install()
        page.add_init_script(_COUNTS)
        page.goto(f"{site.url}/pages/live?subscriber=other")
        expect(page.locator("#state")).to_contain_text("not live: No such subscriber")
        page.clock.run_for(60_000)
        assert page.evaluate("window.streams") == 1


def test_a_state_that_is_known_is_no_news(browser: Browser, site: ConsoleSite) -> None:
    idle = ("subscriber", {"subscriber": "sub1", "state": "IDLE"})
    happened(site, idle, ("package", entry(41)))  # each time that it is followed again
    with signed_in(browser, site.url, "live") as opened:
        page = opened.page
        expect(page.locator("[data-kind=package]").nth(1)).to_be_visible()
        expect(page.locator("[data-kind=subscriber]")).to_have_count(1)
        happened(site, ("subscriber", {"subscriber": "sub1", "state": "BLOCKED"}))
        expect(page.locator("[data-kind=subscriber]")).to_have_count(2)


def test_a_word_that_no_row_contains_is_said_to_be_in_none(
    browser: Browser, site: ConsoleSite
) -> None:
    with signed_in(browser, site.url, "live") as opened:
        page = opened.page
        expect(page.locator("[data-kind=package]").first).to_be_visible()
        none = page.locator("#unmatched")
        expect(none).to_be_hidden()
        page.fill("#contains", "nobody")
        expect(none).to_be_visible()
        page.fill("#contains", "/site/news")
        expect(none).to_be_hidden()


def test_what_the_publisher_refuses_is_said_and_ends_the_stream(site: ConsoleSite) -> None:
    site.publisher.answers["GET /events"] = REFUSAL
    [said] = site.stream("live/events?subscriber=other", 2)
    assert (said.event, "No such subscriber" in said.data) == ("refused", True)


def test_what_can_no_longer_be_shown_is_said(site: ConsoleSite) -> None:
    gap = {"source": "package", "from_offset": 3, "to_offset": 9, "reason": "FORGOTTEN"}
    happened(site, ("gap", gap), ("strange", "no object"))
    first, _second = site.stream("live/events", 2)
    assert "events 3 to 9 can't be shown: forgotten" in first.data


def test_who_has_not_signed_in_follows_nothing(site: ConsoleSite) -> None:
    assert httpx.get(f"{site.url}/pages/live/events", timeout=120).status_code == 401
    assert site.get("live", token=None).status_code == 303
    assert site.publisher.requested == []


def test_the_page_has_its_filter_in_the_address(site: ConsoleSite) -> None:
    text = site.get("live?kind=status&subscriber=sub1").text
    assert "<option selected>status</option>" in text
    assert "packhorse events --types status --subscriber sub1" in text
    assert site.get("live?kind=other").status_code == 422


def test_what_comes_from_elsewhere_is_text(site: ConsoleSite) -> None:
    hostile = failed(**dict.fromkeys(("subscriber", "status", "reason", "package_id"), HOSTILE))
    happened(site, ("status", hostile), ("package", entry(41, HOSTILE, action=HOSTILE)))
    for event in site.stream("live/events", 2):
        assert "<script>alert" not in event.data
        assert "<img" not in event.data
