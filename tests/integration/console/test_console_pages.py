"""The console's pages over HTTP: what they show, to whom, and what no other site gets it to do."""

from collections.abc import Iterator
from urllib.parse import urlencode

import httpx
import pytest

from tests.harness.console import (
    HOSTILE,
    REASON,
    ConsoleSite,
    blocked,
    clear_bound,
    console_site,
    queue,
)
from tests.harness.written_publisher import entry

COMMAND = {"command_id": "c1", "state": "ISSUED", "subscriber": "sub1"}
ACTS = ["retry", "pause", "resume", "stop"]


@pytest.fixture(scope="module")
def running() -> Iterator[ConsoleSite]:
    with console_site(jobs_urls={"author": "http://127.0.0.1:1"}) as site:
        yield site


@pytest.fixture
def site(running: ConsoleSite) -> ConsoleSite:
    running.publisher.forget()
    running.publisher.shows(queue("sub1"), blocked("sub2"))
    for action in ACTS:
        method = "POST" if action == "retry" else "PUT"
        running.publisher.answers[f"{method} /subscribers/sub2/{action}"] = COMMAND
    running.publisher.answers["POST /queues/sub2/clear"] = COMMAND
    return running


def test_what_stands_still_comes_first_with_its_reason(site: ConsoleSite) -> None:
    text = site.get("overview").text
    assert text.index('data-urgent="sub2"') < text.index('data-queue="sub2"')
    assert text.index('data-queue="sub2"') < text.index('data-queue="sub1"')
    assert "NotNullViolation" in text
    assert "then retry" in text, "what to do"
    assert "packhorse get queues" in text
    assert 'href="/pages/jobs"' in text
    assert 'href="/pages/topology"' not in text, "it was not told of a topology service"


def test_a_page_is_asked_with_the_callers_own_token(site: ConsoleSite) -> None:
    site.get("overview", token="viewer")
    assert {token for _, _, token, _ in site.publisher.requested} == {"Bearer viewer"}


def test_nobody_is_shown_the_form_and_nothing_is_asked(site: ConsoleSite) -> None:
    answer = site.get("queue?agent=main&subscriber=sub2", token=None)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/pages/sign-in?next=/pages/queue")
    assert site.get("overview/content", token=None).status_code == 401
    assert site.publisher.requested == []


def test_the_filter_is_in_the_address(site: ConsoleSite) -> None:
    found = site.get("overview?find=SUB1").text
    assert 'data-queue="sub1"' in found
    assert 'data-queue="sub2"' not in found
    assert 'data-queue="sub1"' not in site.get("overview?state=BLOCKED").text
    assert "No queue matches" in site.get("overview?find=other").text
    assert site.get("overview?nonsense=1").status_code == 422


@pytest.mark.parametrize(
    ("page", "command"),
    [
        ("distribute", "packhorse distribute --action add"),
        ("failures", "packhorse get queues"),
        ("queue/clear?agent=main&subscriber=sub1", "packhorse get queue --server"),
        ("subscriber/reset?agent=main&subscriber=sub1&to=4", "packhorse reset offset --to 4"),
        ("pipeline", "packhorse report delivery"),
    ],
)
def test_a_page_without_anything_says_the_command_line_too(
    site: ConsoleSite, page: str, command: str
) -> None:
    site.publisher.shows(queue("sub1"))
    site.publisher.answers["GET /queues/sub1/clear"] = clear_bound(0, 0)
    text = site.get(page).text
    assert command in text
    assert "curl " in text


def test_without_subscribers_it_says_how_to_begin(site: ConsoleSite) -> None:
    site.publisher.shows()
    assert "packhorse-subscriber" in site.get("overview").text


def test_a_publisher_that_is_away_is_named(site: ConsoleSite) -> None:
    with console_site(publisher_urls={"main": "http://127.0.0.1:1"}) as lonely:
        answer = lonely.get("overview")
    assert answer.status_code == 200
    assert "nobody answers at http://127.0.0.1:1" in answer.text


def test_a_part_that_has_not_changed_is_not_sent_again(site: ConsoleSite) -> None:
    first = site.get("overview/content")
    again = site.get("overview/content", **{"If-None-Match": f"W/{first.headers['etag']}"})
    assert (first.status_code, again.status_code) == (200, 304)


def test_a_queue_shows_its_head_and_why_it_does_not_move(site: ConsoleSite) -> None:
    text = site.get("queue?agent=main&subscriber=sub2").text
    assert REASON.partition('"')[0] in text
    assert '<tr data-offset="41" class="head">' in text
    assert text.count("data-offset") == 2
    assert "/pages/distribution?agent=main&amp;number=p41" in text
    assert text.count("/pages/content?path=%2Fsite%2Fnews") == 2
    assert f"packhorse retry subscriber --server {site.publisher.url} -- sub2" in text


def test_a_package_for_some_says_for_whom(site: ConsoleSite) -> None:
    page = site.publisher.answers["GET /queues/sub2"]
    page["entries"] = [entry(41, "/a", targets=["sub2", "b", HOSTILE, "d"]), entry(42, "/a")]
    text = site.get("queue?agent=main&subscriber=sub2").text
    assert text.count("only for") == 1
    assert "only for sub2, b, &lt;" in text
    assert "and 1 more" in text
    assert "<script>alert" not in text


def test_the_filter_of_a_queue_is_the_publishers(site: ConsoleSite) -> None:
    site.get("queue?agent=main&subscriber=sub2&path=/site/a b&action=ADD")
    assert "path_prefix=%2Fsite%2Fa+b&action=ADD" in site.publisher.requested[-1][1]


def test_an_agent_that_is_not_known_is_none(site: ConsoleSite) -> None:
    assert site.get("queue?agent=other&subscriber=sub2").status_code == 404
    assert site.publisher.requested == []


@pytest.mark.parametrize("action", ACTS)
def test_a_command_is_sent_with_the_callers_token(site: ConsoleSite, action: str) -> None:
    done = site.post(f"queue/{action}", agent="main", subscriber="sub2")
    assert done.status_code == 303
    assert done.headers["location"] == f"/pages/queue?agent=main&subscriber=sub2&done={action}"
    [(method, path, token, _)] = site.publisher.changes()
    assert (path, token) == (f"/subscribers/sub2/{action}", "Bearer operator")
    assert method == ("POST" if action == "retry" else "PUT")


@pytest.mark.parametrize("path", [*(f"queue/{action}" for action in ACTS), "queue/clear"])
@pytest.mark.parametrize(
    ("token", "sent_from", "status"),
    [
        ("viewer", "same-origin", 403),
        ("nobody", "same-origin", 401),
        (None, "same-origin", 401),
        ("operator", "cross-site", 403),
        ("operator", "same-site", 403),
        ("operator", "none", 403),
    ],
)
def test_who_may_not_changes_nothing(
    site: ConsoleSite, path: str, token: str | None, sent_from: str, status: int
) -> None:
    form = {"agent": "main", "subscriber": "sub2", "up_to": "41", "count": "1", "typed": "clear 1"}
    assert site.post(path, token, sent_from, **form).status_code == status
    assert site.publisher.changes() == []


def test_without_the_scopes_there_are_no_buttons(site: ConsoleSite) -> None:
    page = "queue?agent=main&subscriber=sub2"
    main = site.get(page, token="viewer").text.partition("<main")[2]
    assert "<button" not in main
    assert "queue/clear" not in main.partition("<details")[0]
    assert "<button" in site.get(page).text.partition("<main")[2]


def test_what_the_publisher_refuses_is_said_and_nothing_else(site: ConsoleSite) -> None:
    """The console decides nothing: who loses a right at the publisher has lost it here."""
    refusal = {"type": "/problems/forbidden", "title": HOSTILE, "status": 403, "detail": HOSTILE}
    site.publisher.answers["POST /subscribers/sub2/retry"] = (403, refusal)
    answer = site.post("queue/retry", agent="main", subscriber="sub2")
    assert answer.status_code == 403
    assert "<h1>Not done</h1>" in answer.text
    assert "<script>alert" not in answer.text


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("queue?agent=gone&subscriber=sub2", 404, "knows no publisher"),
        ("subscriber?agent=main&subscriber=sub2&hours=99", 422, "query/hours: "),
        ("overview/content", 401, 'href="/pages/sign-in"'),
    ],
)
def test_a_browser_reads_what_is_wrong_as_a_page(
    site: ConsoleSite, path: str, status: int, says: str
) -> None:
    who = None if status == 401 else "operator"
    answer = site.get(path, who, Accept="text/html,*/*;q=0.8")
    assert answer.status_code == status
    assert "<h1>Not shown</h1>" in answer.text
    assert says in answer.text
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert site.get(path, who).headers["content-type"] == "application/problem+json"


def test_what_comes_from_elsewhere_is_text(site: ConsoleSite) -> None:
    said = {"reason": HOSTILE, "state": HOSTILE, "length_unknown": HOSTILE}
    hostile = {**blocked(HOSTILE), **said}
    site.publisher.shows(hostile)
    page = {**hostile, "agent": HOSTILE, "next": None}
    page["entries"] = [entry(41, HOSTILE, user=HOSTILE, action=HOSTILE, time=HOSTILE)]
    site.publisher.answers["GET /queues/sub2"] = page
    link = urlencode({"agent": "main", "subscriber": "sub2", "path": HOSTILE, "cursor": HOSTILE})
    for path in ("overview", f"overview?{urlencode({'find': HOSTILE})}", f"queue?{link}"):
        text = site.get(path).text
        assert "alert(1)" in text or "find=" in path
        assert "<script>alert" not in text
        assert "<img" not in text
        assert "49" not in text.partition("<main")[2].partition("<details")[0].replace("4999", "")


def test_every_page_has_the_policy_and_is_kept_nowhere(site: ConsoleSite) -> None:
    for path in ("overview", "queue?agent=main&subscriber=sub2", "sign-in/link?ticket=x"):
        headers = site.get(path).headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "no-store" in headers["cache-control"]


@pytest.mark.parametrize("wanted", ["//evil.example", "https://evil.example", "/pages\\evil", "/x"])
def test_signing_in_leads_to_no_other_site(site: ConsoleSite, wanted: str) -> None:
    done = httpx.post(
        f"{site.url}/pages/sign-in",
        data={"token": "viewer", "next": wanted},
        headers={"Sec-Fetch-Site": "same-origin"},
        timeout=120,
    )
    assert done.headers["location"] == "/pages/overview"


def asked_for_link(site: ConsoleSite, token: str) -> httpx.Response:
    own = {"Authorization": f"Bearer {token}"}
    return httpx.post(f"{site.url}/pages/sign-in-links", headers=own, timeout=120)


def link_of(site: ConsoleSite, token: str = "viewer") -> str:
    answer = asked_for_link(site, token)
    assert answer.status_code == 200, answer.text
    path: str = answer.json()["path"]
    return path


def test_a_link_signs_in_once(site: ConsoleSite) -> None:
    ticket = link_of(site).partition("ticket=")[2]
    assert "Set-Cookie" not in site.get(f"sign-in/link?ticket={ticket}", token=None).headers
    done = site.post("sign-in/link", token=None, ticket=ticket)
    assert (done.status_code, done.headers["location"]) == (303, "/pages/overview")
    cookie = done.headers["set-cookie"]
    assert all(part in cookie for part in ("HttpOnly", "SameSite=strict", "Path=/pages"))
    assert "domain" not in cookie.lower(), "no other name that leads here gets it"
    again = site.post("sign-in/link", token=None, ticket=ticket)
    assert (again.status_code, "set-cookie" in again.headers) == (410, False)


def test_a_caller_who_makes_many_links_loses_only_the_own_oldest(site: ConsoleSite) -> None:
    others = link_of(site, "admin").partition("ticket=")[2]
    own = [link_of(site).partition("ticket=")[2] for _ in range(7)]
    statuses = [
        site.post("sign-in/link", token=None, ticket=ticket).status_code
        for ticket in (others, own[0], *own[-6:])
    ]
    assert statuses == [303, 410, 410, *[303] * 5]


def test_no_other_site_can_follow_a_link(site: ConsoleSite) -> None:
    ticket = link_of(site).partition("ticket=")[2]
    refused = site.post("sign-in/link", token=None, sent_from="cross-site", ticket=ticket)
    assert (refused.status_code, "set-cookie" in refused.headers) == (403, False)
    assert site.post("sign-in/link", token=None, ticket=ticket).status_code == 303, "not used up"


@pytest.mark.parametrize(("token", "status"), [("nobody", 401), ("editor", 403)])
def test_a_link_is_for_who_may_see_the_pages(site: ConsoleSite, token: str, status: int) -> None:
    answer = asked_for_link(site, token)
    assert answer.status_code == status
    cookie_only = site.post("sign-in-links")
    assert cookie_only.status_code == 401, "a cookie makes no links"


def test_a_service_that_does_not_answer_is_named(site: ConsoleSite) -> None:
    away = site.get("jobs")
    assert (away.status_code, "127.0.0.1:1" in away.text) == (503, True)
    assert "See whether the service runs there. Try again." in away.text
    assert site.get("topology").status_code == 404
    assert site.get("jobs?at=other").status_code == 404
