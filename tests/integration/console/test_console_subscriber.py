"""The console's page of a subscriber over HTTP, and the reset that it asks for."""

from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, expect

from tests.harness.browser import signed_in
from tests.harness.console import (
    HOSTILE,
    REASON,
    WHO_MAY_NOT,
    ConsoleSite,
    command,
    console_site,
)
from tests.harness.written_publisher import announced

PAGE = "subscriber?agent=main&subscriber=sub1"
RESET = {"agent": "main", "subscriber": "sub1", "to": "12", "typed": "reset 12"}


@pytest.fixture
def site(running: ConsoleSite) -> ConsoleSite:
    running.publisher.forget()
    answers = running.publisher.answers
    shows(running)
    answers["GET /commands"] = {"commands": [command("RETRY", removed=3)], "next": None}
    answers["PATCH /subscribers/sub1/offset"] = command("RESET", "SENT", offset=12)
    answers["PUT /subscribers/sub1/stop"] = command("STOP", "SENT")
    return running


TAKES = {"include": ["/site"], "exclude": ["/site/private"]}


def shows(site: ConsoleSite, state: str = "STOPPED", **more: object) -> None:
    site.publisher.answers["GET /subscribers/sub1"] = announced("sub1", state, **more)


def test_it_shows_what_is_announced_and_what_was_done(site: ConsoleSite) -> None:
    shows(site, "BLOCKED", last_error=REASON, attempts=4, max_retries=2, incomplete=True, **TAKES)
    text = site.get(PAGE).text
    assert REASON.partition('"')[0] in text
    assert "after 2 retries" in text
    assert "not all that was distributed" in text
    assert "/site, but not /site/private" in text
    assert 'data-command="c-RETRY-APPLIED"' in text
    assert "anna" in text
    assert "Retry now" in text
    assert "subscriber=sub1" in next(p for _, p, _, _ in site.publisher.requested if "comm" in p)
    part = site.get("subscriber/content?agent=main&subscriber=sub1")
    again = site.get(f"{PAGE.replace('?', '/content?')}", **{"If-None-Match": part.headers["etag"]})
    assert (part.status_code, again.status_code) == (200, 304)


def test_it_is_shown_at_other_agents_that_know_it(site: ConsoleSite) -> None:
    urls = {"main": site.publisher.url, "news": site.publisher.url, "away": "http://127.0.0.1:1"}
    with console_site(publisher_urls=urls) as several:
        text = several.get(PAGE).text
    assert 'data-agent="news"' in text
    assert "nobody answers at http://127.0.0.1:1" in text


def test_one_that_is_not_known_is_said(site: ConsoleSite) -> None:
    assert site.get("subscriber?agent=main&subscriber=other").status_code == 404


def test_a_reset_says_what_it_means_and_wants_the_offset_typed(site: ConsoleSite) -> None:
    asked = site.get("subscriber/reset?agent=main&subscriber=sub1&to=12").text
    assert "imported again" in asked
    assert "reset 12" in asked
    assert "left out" in site.get("subscriber/reset?agent=main&subscriber=sub1&to=50").text
    done = site.post("subscriber/reset", **RESET)
    assert (done.status_code, done.headers["location"]) == (303, f"/pages/{PAGE}&done=reset")
    [(method, path, token, body)] = site.publisher.changes()
    assert (method, path, token) == ("PATCH", "/subscribers/sub1/offset", "Bearer operator")
    assert body == {"offset": 12}


def test_one_that_runs_is_to_be_stopped_first(site: ConsoleSite) -> None:
    shows(site, "RUNNING")
    asked = site.get("subscriber/reset?agent=main&subscriber=sub1&to=12").text
    assert "Stop it" in asked
    assert 'name="typed"' not in asked
    done = site.post("queue/stop", agent="main", subscriber="sub1", back="subscriber")
    assert done.headers["location"] == f"/pages/{PAGE}&done=stop"
    assert site.publisher.changes()[0][1] == "/subscribers/sub1/stop"


def test_what_was_done_is_said_once(browser: Browser, site: ConsoleSite) -> None:
    with signed_in(browser, site.url, f"{PAGE}&done=stop") as opened:
        notice = opened.page.locator(".notice")
        expect(notice).to_contain_text("It is asked to stop")
        expect(opened.page).to_have_url(f"{site.url}/pages/{PAGE}")
        opened.page.reload()
        expect(notice).to_have_count(0)


@pytest.mark.parametrize("to", ["", "-2", "²", "1e3", "9" * 19, "9" * 30, "x"])
def test_what_is_no_offset_resets_nothing(site: ConsoleSite, to: str) -> None:
    form = {**RESET, "to": to, "typed": f"reset {to}"}
    assert site.post("subscriber/reset", **form).status_code == 400
    wanted = urlencode({"agent": "main", "subscriber": "sub1", "to": to[:20]})
    assert "whole number" in site.get(f"subscriber/reset?{wanted}").text
    assert site.publisher.changes() == []


@pytest.mark.parametrize(("token", "sent_from", "status"), WHO_MAY_NOT)
@pytest.mark.parametrize("path", ["subscriber/reset", "queue/stop"])
def test_who_may_not_changes_nothing(
    site: ConsoleSite, path: str, token: str | None, sent_from: str, status: int
) -> None:
    assert site.post(path, token, sent_from, **RESET).status_code == status
    assert site.publisher.changes() == []


def test_without_the_scope_there_are_no_buttons(site: ConsoleSite) -> None:
    main = site.get(PAGE, token="viewer").text.partition("<main")[2]
    assert "<button" not in main
    asked = site.get("subscriber/reset?agent=main&subscriber=sub1&to=12", token="viewer").text
    assert "needs a token" in asked


def test_what_comes_from_elsewhere_is_text(site: ConsoleSite) -> None:
    said = dict.fromkeys(("last_error", "endpoint", "instance", "last_seen"), HOSTILE)
    shows(site, HOSTILE, **said)
    rows = [command(HOSTILE, HOSTILE, issued_by=HOSTILE, reason=HOSTILE)]
    site.publisher.answers["GET /commands"] = {"commands": rows, "next": None}
    for path in (PAGE, "subscriber/reset?agent=main&subscriber=sub1&to=12"):
        text = site.get(path).text
        assert "<script>alert" not in text
        assert "<img" not in text
