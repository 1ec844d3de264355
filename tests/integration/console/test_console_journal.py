"""The console's journal over HTTP: records of each topic decoded, and cleanup runs."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, expect

from tests.harness.browser import signed_in
from tests.harness.console import HOSTILE, ConsoleSite, console_site, journal_record
from tests.harness.written_publisher import written_publisher


@pytest.fixture(scope="module")
def running() -> Iterator[ConsoleSite]:
    with (
        written_publisher() as publisher,
        console_site(publisher, cleanup_url=publisher.url) as site,
    ):
        yield site


@pytest.fixture
def site(running: ConsoleSite) -> ConsoleSite:
    running.publisher.forget()
    holds(running, *(journal_record(number) for number in range(40, 60)))
    return running


def holds(site: ConsoleSite, *records: dict[str, Any], topic: str = "package") -> None:
    page = {"name": f"t_{topic}", "partition": 0, "partitions": 1, "records": [*records]}
    page |= {"oldest_offset": 10, "next_offset": 61}
    site.publisher.answers[f"GET /journal/topics/{topic}/records"] = page


def test_records_are_shown_decoded_the_newest_first(site: ConsoleSite) -> None:
    text = site.get("journal", "admin").text
    assert text.index('data-offset="59"') < text.index('data-offset="40"')
    assert "/site/news" in text
    assert "offset=20" in text, "earlier ones"
    assert "offset=60" in text, "later ones"
    assert 'data-refresh="/pages/journal/content"' in text
    assert {token for _, _, token, _ in site.publisher.requested} == {"Bearer admin"}
    part = site.get("journal/content", "admin")
    again = site.get("journal/content", "admin", **{"If-None-Match": part.headers["etag"]})
    assert (part.status_code, again.status_code) == (200, 304)


def test_what_was_folded_stays_and_what_is_new_comes_as_it_is_rendered(
    browser: Browser, site: ConsoleSite
) -> None:
    holds(site, journal_record(58), journal_record(59))
    with signed_in(browser, site.url, "journal", "admin") as opened:
        page = opened.page
        first, second = (page.locator(f"[data-key='{number}/entry']") for number in (59, 58))
        page.locator("[data-offset='59'] > summary").click()
        first.locator("summary").first.click()
        holds(site, *(journal_record(number) for number in (58, 59, 60)))
        expect(page.locator("[data-offset='60']")).to_have_count(1)
        expect(page.locator("[data-offset='59'] > summary")).to_be_visible()
        folded = [one.evaluate("one => one.open") for one in (first, second)]
        new = page.locator("[data-key='60/entry']").evaluate("one => one.open")
        assert (folded, new) == ([False, True], True)


def test_they_are_read_from_an_offset_or_a_time_on(site: ConsoleSite) -> None:
    assert "data-refresh" not in site.get("journal?offset=41", "admin").text
    site.get("journal?since=2026-01-02T03:04", "admin")
    first, second = (path for _, path, _, _ in site.publisher.requested)
    assert "offset=41" in first
    assert "since=2026-01-02T03%3A04%3A00%2B00%3A00" in second
    assert "is no time such as" in site.get("journal?since=yesterday", "admin").text
    assert site.get("journal?topic=other", "admin").status_code == 422


def test_a_package_is_shown_with_what_it_carries(site: ConsoleSite) -> None:
    node = {"path": "/site/news", "type": "page", "properties": {"title": "Of today"}}
    holds(site, journal_record(41, nodes=[{**node, "binaries": {}}]))
    assert "Of today" in site.get("journal?offset=41&bodies=1", "admin").text
    asked = site.publisher.requested[0][1]
    assert all(word in asked for word in ("bodies=true", "limit=1", "offset=41"))


def test_records_need_admin_and_nothing_is_asked_without(site: ConsoleSite) -> None:
    for page in ("journal", "journal/content", "cleanup"):
        assert "data-offset" not in site.get(page).text
    assert "scope <code>admin" in site.get("journal").text
    assert site.publisher.requested == []


def test_cleanup_runs_are_shown(site: ConsoleSite) -> None:
    run = {"id": 7, "origin": "schedule", "dry_run": False, "state": "SUCCEEDED", "kept": {}}
    removed = {"old": {"count": 3, "bytes": 9}, "orphan": {"count": 2, "bytes": 1}}
    at = {"requested_at": "2026-01-01T12:00:00Z"}
    site.publisher.answers["GET /cleanup/runs"] = [{**run, **at, "removed": removed}]
    text = site.get("cleanup", "admin").text
    assert 'data-run="7"' in text
    assert '<td data-label="Removed" class="number">5</td>' in text


def test_without_an_address_it_says_how_to_name_it() -> None:
    with console_site() as bare:
        assert "PACKHORSE_CLEANUP_URL" in bare.get("journal", "admin").text
        assert "PACKHORSE_CLEANUP_URL" in bare.get("cleanup", "admin").text


def test_what_comes_from_elsewhere_is_text(site: ConsoleSite) -> None:
    said = {"key": HOSTILE, "type": HOSTILE, "wrong": HOSTILE, "message": {HOSTILE: [HOSTILE]}}
    holds(site, journal_record(41, **said, nodes=[{HOSTILE: HOSTILE}]))
    for query in ({}, {"offset": HOSTILE[:20]}, {"bodies": "1"}):
        text = site.get(f"journal?{urlencode(query)}", "admin").text
        assert "<script>alert" not in text
        assert "<img" not in text
