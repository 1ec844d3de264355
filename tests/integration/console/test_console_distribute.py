"""Distributing from the console over HTTP, now and later."""

import re
from threading import Event
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.harness.console import (
    HOSTILE,
    WHO_MAY_NOT,
    ConsoleSite,
    address,
    console_site,
    distribution,
    dry_run,
    release,
    row,
)

FORM = {"agent": "main", "paths": "/site/a b\r\n/site/c", "action": "ADD", "key": "k1"}
ACTS = {"distribute": FORM, "releases/send": {"agent": "main", "release": "id-spring"}}
ACTS["releases/cancel"] = ACTS["releases/send"]


@pytest.fixture
def site(running: ConsoleSite) -> ConsoleSite:
    running.publisher.forget()
    answers = running.publisher.answers
    targets = [{"subscriber": "sub1", "state": "BLOCKED", "length": 3}]
    answers["POST /distribute/dry-run"] = dry_run(subscribers=targets)
    answers["POST /distribute"] = {**distribution("d1"), "repeated": False}
    rows = [release("spring"), release("autumn", "SENT", package_id="p7")]
    answers["GET /releases"] = {"agent": "main", "releases": rows, "next": None}
    for method in ("GET", "PATCH", "DELETE"):
        answers[f"{method} /releases/id-spring"] = rows[0]
    waiting = distribution("id-spring", state="SCHEDULED", at=rows[0]["at"], subscribers=[])
    answers["GET /distributions/id-spring"] = waiting
    return running


def asked(site: ConsoleSite, path: str) -> list[Any]:
    return [body for _, found, _, body in site.publisher.requested if found == path]


def test_what_it_would_be_is_shown_before(site: ConsoleSite) -> None:
    query = urlencode({"paths": "/site/a b\n/site/c", "deep": "1", "action": "DELETE"})
    text = site.get(f"distribute?{query}").text
    assert 'data-target="sub1"' in text
    assert "packhorse distribute --action delete --deep" in text
    wanted = {"action": "DELETE", "deep_paths": ["/site/a b", "/site/c"]}
    assert asked(site, "/distribute/dry-run") == [wanted]
    assert asked(site, "/distribute") == []


def test_the_form_alone_asks_nothing(site: ConsoleSite) -> None:
    assert "Show what it would be" in site.get("distribute").text
    assert site.publisher.requested == []


def test_what_is_refused_is_said_in_the_form(site: ConsoleSite) -> None:
    refusal = {"type": "/problems/path-missing", "title": "A path does not exist", "status": 404}
    site.publisher.answers["POST /distribute/dry-run"] = (404, {**refusal, "detail": HOSTILE})
    text = site.get("distribute?paths=/x").text
    assert ("alert(1)" in text, "<script>alert" in text) == (True, False)
    assert "is no time such as" in site.get("distribute?paths=/x&at=tomorrow").text


def test_it_is_sent_once_with_the_key_of_the_form(site: ConsoleSite) -> None:
    done = site.post("distribute", **FORM)
    assert done.headers["location"] == "/pages/distribution?agent=main&number=d1"
    assert asked(site, "/distribute") == [{"action": "ADD", "paths": ["/site/a b", "/site/c"]}]
    text = site.get("distribute?paths=/site").text
    assert 'name="key" value="' in text
    without = site.post("distribute", **{**FORM, "key": ""})
    assert (without.status_code, len(asked(site, "/distribute"))) == (400, 1)


def test_what_may_be_done_is_not_offered_again_under_another_key() -> None:
    answered = Event()
    with console_site(upstream_timeout_s=0.2) as site:
        site.publisher.answers["POST /distribute"] = lambda _query: answered.wait(120)
        done = site.post("distribute", **FORM)
        answered.set()
        assert (done.status_code, "look before you ask again" in done.text) == (503, True)
        assert 'name="key"' not in done.text
        assert "Show what it would be" not in done.text


@pytest.mark.parametrize("status", [500, 502, 504])
def test_nor_is_it_after_an_answer_that_says_nothing_of_it(site: ConsoleSite, status: int) -> None:
    site.publisher.answers["POST /distribute"] = (status, {"title": "Away", "status": status})
    done = site.post("distribute", **FORM)
    assert (done.status_code, "look before you ask again" in done.text) == (status, True)
    assert "Show what it would be" not in done.text


def test_later_is_at_a_moment_in_utc(site: ConsoleSite) -> None:
    site.post("distribute", **{**FORM, "at": "2026-12-24T18:00", "deep": "1"})
    [body] = asked(site, "/distribute")
    assert body["at"] == "2026-12-24T18:00:00+00:00"
    assert body["deep_paths"] == ["/site/a b", "/site/c"]


def test_it_may_be_for_some_subscribers_alone(site: ConsoleSite) -> None:
    text = site.get("distribute?paths=/site&to=sub1,%20sub2").text
    assert "--to sub1 --to sub2" in text
    site.post("distribute", **{**FORM, "to": "sub1, sub2"})
    [asked_before], [done] = asked(site, "/distribute/dry-run"), asked(site, "/distribute")
    assert asked_before["targets"] == done["targets"] == ["sub1", "sub2"]


def test_releases_are_shown_with_what_can_be_done(site: ConsoleSite) -> None:
    text = site.get("releases?state=SCHEDULED").text
    assert "state=SCHEDULED" in site.publisher.requested[0][1]
    assert text.count("Send now…</a>") == 1, "what is sent can't be sent again"
    assert "number=p7" in text
    assert site.get("releases/content").status_code == 200
    assert "Send now" not in site.get("releases", token="viewer").text


def test_what_is_still_to_go_out_comes_before_what_is_over(site: ConsoleSite) -> None:
    states = {"old": "SENT", "late": "FAILED", "new": "CANCELLED", "next": "SCHEDULED"}
    rows = [
        release(name, state, at=f"2026-12-0{day}T18:00:00Z")
        for day, (name, state) in enumerate(states.items(), 1)
    ]
    page = {"agent": "main", "releases": [*rows, release("idea", "DRAFT", at=None)], "next": None}
    site.publisher.answers["GET /releases"] = page
    text = site.get("releases").text
    assert re.findall('data-release="id-([a-z]+)"', text) == ["late", "next", "idea", "new", "old"]
    assert "2026-12-03" not in row(text, 'data-release="id-new"'), "it does not go out then"


def test_many_that_are_over_hide_nothing_that_goes_out(site: ConsoleSite) -> None:
    of = {"SCHEDULED": [release("next")], "FAILED": [], "DRAFT": [release("idea", "DRAFT")]}

    def page(query: dict[str, str]) -> dict[str, Any]:
        rows = of.get(query.get("state", ""), [release("old", "SENT")])
        more = f"/releases?cursor={query['state']}" if "state" in query else "/releases?cursor=x"
        return {"agent": "main", "releases": rows, "next": None if rows in of.values() else more}

    site.publisher.answers["GET /releases"] = page
    text = site.get("releases").text
    assert re.findall('data-release="id-([a-z]+)"', text) == ["next", "idea"]
    site.get(address(site.get(address(text, "sent")).text, "Next page"))
    assert site.publisher.requested[-1][1] == "/releases?limit=100&state=SENT&cursor=SENT"


@pytest.mark.parametrize(
    ("action", "method", "body"), [("send", "PATCH", {"at": "now"}), ("cancel", "DELETE", None)]
)
def test_a_release_is_sent_now_or_cancelled_once_it_is_confirmed(
    site: ConsoleSite, action: str, method: str, body: object
) -> None:
    label = {"send": "Send now…", "cancel": "Cancel…"}[action]
    question = site.get(address(site.get("releases").text, label)).text
    assert f"packhorse release {action} --server {site.publisher.url} -- spring" in question
    assert site.publisher.changes() == []
    done = site.press(question, f"releases/{action}")
    [found] = site.publisher.changes()
    assert found == (method, "/releases/id-spring", "Bearer operator", body)
    assert "Goes out" in done.text, "its own page says what becomes of it"


@pytest.mark.parametrize("token", ["operator", "viewer"])
def test_what_is_over_can_be_neither_sent_nor_cancelled(site: ConsoleSite, token: str) -> None:
    over = release("autumn", "SENT" if token == "operator" else "SCHEDULED")
    site.publisher.answers["GET /releases/id-autumn"] = over
    for action in ("send", "cancel"):
        text = site.get(f"releases/{action}?agent=main&release=id-autumn", token).text
        assert '<form method="post" action="/pages/releases' not in text


def test_a_release_that_waits_is_shown_as_a_distribution(site: ConsoleSite) -> None:
    waiting = distribution("r1", state="SCHEDULED", at="2026-12-24T18:00:00Z", reason="late")
    site.publisher.answers["GET /distributions/r1"] = {**waiting, "subscribers": []}
    text = site.get("distribution?agent=main&number=r1").text
    assert address(text, "Send it now…") == "releases/send?agent=main&release=r1"
    sent = {**distribution("d1", deep_paths=["/a&b"], paths=[]), "subscribers": []}
    sent["targets"] = ["sub1"]
    site.publisher.answers["GET /distributions/d1"] = sent
    again = site.get("distribution?agent=main&number=d1").text
    assert (
        "/pages/distribute?agent=main&amp;paths=%2Fa%26b&amp;action=ADD&amp;to=sub1&amp;deep=1"
        in again
    )


def test_who_may_not_distribute_is_offered_no_way_to_it(site: ConsoleSite) -> None:
    waiting = {**distribution("r1", state="SCHEDULED"), "subscribers": []}
    site.publisher.answers["GET /distributions/r1"] = waiting
    site.publisher.answers["GET /distributions/d1"] = {**waiting, "state": "DISTRIBUTED"}
    site.publisher.answers["GET /distributions"] = {"distributions": [], "next": None}
    site.publisher.answers["GET /releases"] = {"agent": "main", "releases": [], "next": None}
    of = "distribution?agent=main&number="
    for page in ("distributions", "releases", "live", f"{of}r1", f"{of}d1"):
        offered = ['href="/pages/distribute?', "Send it now"]
        found = [
            any(one in site.get(page, token).text for one in offered)
            for token in ("operator", "viewer")
        ]
        assert found == [True, False], page
    assert 'href="/pages/distribute?' not in site.get("distribute", token="viewer").text


@pytest.mark.parametrize(("token", "sent_from", "status"), WHO_MAY_NOT)
@pytest.mark.parametrize("path", ACTS)
def test_who_may_not_changes_nothing(
    site: ConsoleSite, path: str, token: str | None, sent_from: str, status: int
) -> None:
    assert site.post(path, token, sent_from, **ACTS[path]).status_code == status
    assert site.publisher.changes() == []
    shown = site.get("distribute?paths=/x", token="viewer").text
    assert "needs a token" in shown
    assert site.publisher.changes() == [], "not even a dry run"


def test_what_comes_from_elsewhere_is_text(site: ConsoleSite) -> None:
    rows = [release(HOSTILE, user=HOSTILE, reason=HOSTILE, paths=[HOSTILE], id=HOSTILE)]
    site.publisher.answers["GET /releases"] = {"agent": "main", "releases": rows, "next": None}
    targets = [{"subscriber": HOSTILE, "state": HOSTILE, "length": 3}]
    site.publisher.answers["POST /distribute/dry-run"] = dry_run(subscribers=targets)
    for path in ("releases", f"distribute?{urlencode({'paths': HOSTILE})}"):
        text = site.get(path).text
        assert "<script>alert" not in text
        assert "<img" not in text
