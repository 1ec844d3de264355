"""The console's distributions, error queues and commands over HTTP."""

import re
from html import unescape
from itertools import product
from typing import Any
from urllib.parse import urlencode

import pytest

from packhorse_services.console.page.failures import Failure
from tests.harness.console import (
    HOSTILE,
    WHO_MAY_NOT,
    ConsoleSite,
    command,
    distribution,
    failure,
    queue,
)
from tests.harness.written_publisher import AT

FORM = {"filter": "", "count": "3", "typed": "redistribute 3"}
ACTS = ["failures/redistribute", "failures/dismiss"]


@pytest.fixture
def site(running: ConsoleSite) -> ConsoleSite:
    publisher = running.publisher
    publisher.forget()
    publisher.shows(queue("sub1", errors=2), queue("sub2", errors=2), queue("sub3"))
    publisher.gave_up("sub1", failure(7), failure(8, "OutOfMemory: 12 MiB"))
    publisher.gave_up("sub2", failure(7), failure(9, redistributed_as="d9"))
    done = {"redistribute": {"entries": [], "more": False}, "dismiss": {"offsets": [7]}}
    for name in ("sub1", "sub2"):
        for action, answer in done.items():
            publisher.answers[f"POST /queues/{name}/errors/{action}"] = answer
    return running


def shown(site: ConsoleSite, action: str) -> dict[str, str]:
    """Return the fields of the form that asks for the number."""
    text = site.get(f"failures/{action}").text
    fields = re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', text)
    return {name: unescape(value) for name, value in fields}


def changes(site: ConsoleSite) -> list[tuple[str, list[int], str | None]]:
    return [(path, body["offsets"], token) for _, path, token, body in site.publisher.changes()]


def test_what_was_given_up_is_shown_by_reason(site: ConsoleSite) -> None:
    text = site.get("failures").text
    assert 'data-group="NotNullViolation: null value in column"' in text
    assert 'data-group="OutOfMemory:"' in text
    assert text.index("NotNullViolation") < text.index("OutOfMemory"), "the largest group first"
    asked = {path.partition("?")[0] for _, path, _, _ in site.publisher.requested}
    assert "/queues/sub3/errors" not in asked, "it has none"


def test_many_reasons_are_sorted_once_and_the_first_are_shown(
    site: ConsoleSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, seen = Failure.__dict__["kind"].fget, list[Failure]()

    def counted(one: Failure) -> str:
        seen.append(one)
        return str(read(one))

    monkeypatch.setattr(Failure, "kind", property(counted))
    site.publisher.shows(queue("sub1", errors=1_000))
    words = ("".join(letters) for letters in product("abcdefghij", repeat=3))
    site.publisher.gave_up("sub1", *(failure(n, f"{word}: 1") for n, word in enumerate(words)))
    text = site.get("failures").text
    assert (text.count("data-group="), len(seen)) == (50, 1_000)
    assert "and 950 more reasons" in text


def test_the_filter_takes_a_part_of_the_reason(site: ConsoleSite) -> None:
    text = site.get("failures?reason=outofmemory").text
    assert ("sub1/8" in text, "sub1/7" in text) == (True, False)
    assert "Nothing that was given up matches" in site.get("failures?reason=other").text
    assert "Show all" in site.get("failures?subscriber=sub9").text


def test_without_failures_it_says_so(site: ConsoleSite) -> None:
    site.publisher.shows(queue("sub1"))
    assert "No package was given up" in site.get("failures").text


@pytest.mark.parametrize("action", ["redistribute", "dismiss"])
def test_one_is_done_at_once(site: ConsoleSite, action: str) -> None:
    form = {"filter": urlencode({"agent": "main", "subscriber": "sub2"}), "offset": "7"}
    assert site.post(f"failures/{action}", **form).status_code == 303
    assert changes(site) == [(f"/queues/sub2/errors/{action}", [7], "Bearer operator")]


def test_all_are_done_once_the_number_is_typed_and_what_is_out_again_is_left(
    site: ConsoleSite,
) -> None:
    form = shown(site, "redistribute")
    assert site.post("failures/redistribute", **form, typed="redistribute 3").status_code == 303
    assert [one[:2] for one in changes(site)] == [
        ("/queues/sub1/errors/redistribute", [7, 8]),
        ("/queues/sub2/errors/redistribute", [7]),
    ]


def test_what_arrives_after_the_question_is_left_as_it_is(site: ConsoleSite) -> None:
    form = shown(site, "dismiss")
    site.publisher.gave_up("sub1", failure(7), failure(8, "OutOfMemory: 12 MiB"), failure(10))
    site.publisher.shows(queue("sub1", errors=3), queue("sub2", errors=2), queue("sub3", errors=1))
    site.publisher.gave_up("sub3", failure(5))
    assert site.post("failures/dismiss", **form, typed="dismiss 4").status_code == 303
    assert [one[:2] for one in changes(site)] == [
        ("/queues/sub1/errors/dismiss", [7, 8]),
        ("/queues/sub2/errors/dismiss", [7, 9]),
    ]


@pytest.mark.parametrize("offsets", [(7,), (6, 8), (6, 7, 8)])
def test_nothing_is_done_when_what_was_shown_has_changed(
    site: ConsoleSite, offsets: tuple[int, ...]
) -> None:
    form = shown(site, "dismiss")
    site.publisher.gave_up("sub1", *map(failure, offsets))
    done = site.post("failures/dismiss", **form, typed="dismiss 4")
    assert (done.status_code, "look at it again" in done.text) == (400, True)
    assert changes(site) == []


@pytest.mark.parametrize("action", ["redistribute", "dismiss"])
def test_a_publisher_that_is_away_is_said_to_be_and_not_that_nothing_is_left(
    site: ConsoleSite, action: str
) -> None:
    typed = {**shown(site, action), "typed": f"{action} {3 if action == 'redistribute' else 4}"}
    away = {"type": "/problems/unavailable", "title": "It is starting", "status": 503}
    site.publisher.answers["GET /queues"] = (503, away)
    asked = site.get(f"failures/{action}").text
    assert ("It is starting" in asked, "Nothing of it is left" in asked) == (True, False)
    for form in ({"filter": "", "offset": "7"}, typed):
        done = site.post(f"failures/{action}", **form)
        assert (done.status_code, "It is starting" in done.text) == (503, True)
    assert changes(site) == []


@pytest.mark.parametrize(("action", "offset"), [("dismiss", "70"), ("redistribute", "9")])
def test_one_that_is_no_longer_there_is_said_to_be_gone(
    site: ConsoleSite, action: str, offset: str
) -> None:
    done = site.post(f"failures/{action}", filter="subscriber=sub2", offset=offset)
    assert (done.status_code, "is no longer there" in done.text) == (409, True)
    assert changes(site) == []


def test_more_than_is_looked_at_is_said_to_be_there(site: ConsoleSite) -> None:
    site.publisher.gave_up("sub1", *map(failure, range(1_000)))
    assert "There is more than that" in site.get("failures/dismiss?subscriber=sub1").text
    assert "There is more than that" not in site.get("failures/dismiss?subscriber=sub2").text


def test_what_has_no_reason_is_not_offered_as_all_of_its_kind(site: ConsoleSite) -> None:
    site.publisher.gave_up("sub1", failure(7, ""), failure(8, ""))
    text = site.get("failures").text
    assert text.count("Dismiss these") == 1, "an empty filter would mean the others, too"


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"count": "3"},
        {"count": "3", "typed": "dismiss 3"},
        {"count": "3", "typed": "redistribute 3"},
        {"count": "3", "typed": "redistribute 3", "up_to": '[["main", "sub1", 9]]', "seen": "x"},
        {"count": "²", "typed": "redistribute ²", "up_to": "[" * 5_000},
        {"count": "1", "typed": "redistribute 1", "up_to": '[["main", "sub1", Infinity]]'},
    ],
)
def test_a_forged_form_changes_nothing(site: ConsoleSite, form: dict[str, str]) -> None:
    assert site.post("failures/redistribute", **form).status_code == 400
    assert changes(site) == []


@pytest.mark.parametrize("path", ACTS)
@pytest.mark.parametrize(("token", "sent_from", "status"), WHO_MAY_NOT)
def test_who_may_not_changes_nothing(
    site: ConsoleSite, path: str, token: str | None, sent_from: str, status: int
) -> None:
    assert site.post(path, token, sent_from, **FORM, offset="7").status_code == status
    assert changes(site) == []


def test_what_is_refused_is_said(site: ConsoleSite) -> None:
    refused = {"offset": 7, "state": "x", "distribution_id": None, "reason": "no such node"}
    answer = {"entries": [refused], "more": False}
    site.publisher.answers["POST /queues/sub2/errors/redistribute"] = answer
    done = site.post("failures/redistribute", filter="subscriber=sub2", offset="7")
    assert (done.status_code, "no such node" in done.text) == (409, True)


def test_without_the_scopes_there_are_no_buttons(site: ConsoleSite) -> None:
    main = site.get("failures", token="viewer").text.partition("<main")[2]
    assert "<button" not in main
    assert "failures/dismiss" not in main
    assert "needs a token" in site.get("failures/dismiss", token="viewer").text


def test_distributions_are_found_by_path_user_and_state(site: ConsoleSite) -> None:
    site.publisher.answers["GET /distributions"] = {
        "distributions": [distribution("d1")],
        "next": "/distributions?limit=100&cursor=c1",
    }
    text = site.get("distributions?path=/site/a b&user=editor&state=QUEUED").text
    asked = site.publisher.requested[0][1]
    assert all(f in asked for f in ("path_prefix=%2Fsite%2Fa+b", "user=editor", "state=QUEUED"))
    assert 'href="/pages/distribution?agent=main&amp;number=d1"' in text
    assert "cursor=c1" in text, "the next page"


def test_distributions_are_found_by_time(site: ConsoleSite) -> None:
    days = [f"2026-01-{day:02}T12:00:00Z" for day in (5, 4, 3, 2, 1)]
    rows = [distribution(f"d{at[8:10]}", accepted_at=at) for at in days]
    site.publisher.answers["GET /distributions"] = {"distributions": rows, "next": None}
    text = site.get("distributions?since=2026-01-02T00:00&until=2026-01-04T00:00").text
    assert [f"d{day:02}" for day in range(1, 6) if f'"d{day:02}"' in text] == ["d02", "d03"]
    assert "is no time such as" in site.get("distributions?since=yesterday").text


def test_a_distribution_shows_each_subscriber_what_failed_first(site: ConsoleSite) -> None:
    site.publisher.answers["GET /distributions/d1"] = matrix()
    text = site.get("distribution?agent=main&number=d1").text
    assert text.index('data-subscriber="sub2"') < text.index('data-subscriber="sub1"')
    assert "the disk is full" in text
    assert text.count("01 Jan 12:00:00") == 2, "when it was accepted, and since when it failed"
    assert site.get("distribution/content?agent=main&number=d1").status_code == 200
    assert site.get("distribution?agent=main&number=other").status_code == 404


def test_of_many_subscribers_a_distribution_shows_some_and_finds_the_others(
    site: ConsoleSite,
) -> None:
    one, *_ = matrix()["subscribers"]
    rows = [{**one, "subscriber": f"web-{number}"} for number in range(300)]
    failed = {**one, "subscriber": "last", "state": "REMOVED_FAILED"}
    site.publisher.answers["GET /distributions/d1"] = {**matrix(), "subscribers": [*rows, failed]}
    page = "distribution?agent=main&number=d1"
    text = site.get(page).text
    assert text.count("data-subscriber=") == 250
    assert 'data-subscriber="last"' in text, "what failed comes first"
    assert "51 more; the filter" in text
    assert "<b>300</b>" in text
    assert site.get(f"{page}&find=WEB-299").text.count("data-subscriber=") == 1
    assert site.get(f"{page}&state=REMOVED_FAILED").text.count("data-subscriber=") == 1
    assert "Show all 301" in site.get(f"{page}&find=nobody").text


def matrix(said: str = "the disk is full") -> dict[str, Any]:
    one = {"stale": False, "attempts": 0, "reason": "", "next_attempt_at": None}
    return {
        **distribution("d1"),
        "subscribers": [
            {**one, "subscriber": "sub1", "state": "IMPORTED"},
            {**one, "subscriber": "sub2", "state": "REMOVED_FAILED", "reason": said, "since": AT},
        ],
    }


def test_commands_say_who_did_what(site: ConsoleSite) -> None:
    said = {"issued_by": HOSTILE, "reason": HOSTILE}
    answer = {"commands": [command(state="REJECTED", **said)], "next": None}
    site.publisher.answers["GET /commands"] = answer
    text = site.get("commands?subscriber=sub1").text
    assert ("alert(1)" in text, "<script>alert" in text) == (True, False)
    assert "subscriber=sub1" in site.publisher.requested[0][1]
    assert site.get("commands/content").status_code == 200


def test_what_comes_from_elsewhere_is_text(site: ConsoleSite) -> None:
    site.publisher.shows(queue("sub1", errors=1))
    site.publisher.gave_up("sub1", failure(7, HOSTILE, paths=[HOSTILE], user=HOSTILE))
    site.publisher.answers["GET /distributions"] = {
        "distributions": [distribution(HOSTILE, paths=[HOSTILE], user=HOSTILE, state=HOSTILE)],
        "next": None,
    }
    site.publisher.answers["GET /distributions/d1"] = matrix(HOSTILE)
    link = urlencode({"reason": "<", "subscriber": "sub1"})
    for path in (
        *(f"failures?{link}", f"failures/dismiss?{link}", f"failures/redistribute?{link}"),
        *("distributions", "distribution?agent=main&number=d1"),
    ):
        text = site.get(path).text
        assert "<script>alert" not in text
        assert "<img" not in text
