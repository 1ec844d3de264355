"""The audit page: who did what, from where, and what came of it."""

import logging
from collections.abc import Iterator
from html import unescape
from urllib.parse import urlencode

import pytest

from packhorse.runtime import audit
from packhorse.runtime.paging import write_cursor
from tests.harness.console import HOSTILE, ConsoleSite, command, console_site, distribution
from tests.harness.waiting import eventually

COMMAND = {**command("RETRY", "ISSUED", subscriber="sub2"), "command_id": "c-new"}


@pytest.fixture
def site(running: ConsoleSite) -> Iterator[ConsoleSite]:
    running.publisher.forget()
    answers = running.publisher.answers
    answers["GET /commands"] = {
        "commands": [command("CLEAR", "APPLIED", offset=7), COMMAND],
        "next": None,
    }
    sent = [
        distribution("d1", user="ben", accepted_at="2026-01-02T12:00:00Z"),
        distribution("d2", user="anna", paths=["/site"], accepted_at="2025-12-01T12:00:00Z"),
    ]
    answers["GET /distributions"] = {"distributions": sent, "next": None}
    answers["POST /subscribers/sub2/retry"] = COMMAND
    return running


def rows(site: ConsoleSite, query: str = "", token: str = "operator") -> list[str]:
    text = site.get(f"audit{query}", token=token).text
    return [row.partition('"')[0] for row in text.split('data-act="')[1:]]


def test_commands_and_distributions_are_one_list_newest_first(site: ConsoleSite) -> None:
    assert [one for one in rows(site) if one] == ["d1", "c-new", "c-CLEAR-APPLIED", "d2"]
    text = site.get("audit").text
    assert "/pages/distribution?agent=main&amp;number=d1" in text
    assert "packhorse get commands" in text
    assert "up to 7" in text


def test_the_filter_is_in_the_address(site: ConsoleSite) -> None:
    assert rows(site, "?who=anna") == ["c-new", "c-CLEAR-APPLIED", "d2"]
    assert "user=anna" in site.publisher.requested[-1][1]
    times = urlencode({"since": "2026-01-01T00:00", "until": "2026-01-01T23:00"})
    assert rows(site, f"?{times}&who=anna") == ["c-new", "c-CLEAR-APPLIED"]
    assert "Nothing matches" in site.get("audit?who=nobody").text
    wrong = site.get("audit?since=yesterday")
    assert (wrong.status_code, "is no time" in wrong.text) == (400, True)


def test_an_act_of_this_console_says_from_where_and_a_refused_one_is_there(
    site: ConsoleSite, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, audit.LOGGER)
    site.post("queue/retry", agent="main", subscriber="sub2")
    site.post("queue/retry", "viewer", agent="main", subscriber="sub2")

    def shown() -> str:
        return site.get("audit", token="admin").text

    def both() -> str | None:
        text = shown()
        return text if text.count("127.0.0.1") - text.count("http://127.0.0.1") >= 2 else None

    text = eventually(both, what="both acts with their addresses") or ""
    act = text.partition('data-act="c-new"')[2].partition("</tr>")[0]
    assert "127.0.0.1" in act
    assert text.count("POST /pages/queue/retry") == 1, "what the publisher knows stands once"
    assert '"says">agent main, subscriber sub2, 403' in text, (
        "what was not done has its object, too"
    )
    assert "127.0.0.1" not in site.get("audit").text.partition("<main")[2].partition("<details")[0]


def test_the_next_page_goes_on_where_this_one_ends(site: ConsoleSite) -> None:
    at = [f"2026-01-02T12:{number // 60:02}:{number % 60:02}Z" for number in range(450)][::-1]
    sent = [distribution(f"d{number}", accepted_at=moment) for number, moment in enumerate(at)]
    commands = [command("RETRY", "APPLIED", issued_at=at[250])]

    def listed(query: dict[str, str]) -> dict[str, object]:
        begin = int(query.get("cursor", "0"))
        following = f"/distributions?cursor={begin + 100}" if begin < 400 else None
        return {"distributions": sent[begin : begin + 100], "next": following}

    site.publisher.answers["GET /distributions"] = listed
    site.publisher.answers["GET /commands"] = {"commands": commands, "next": None}
    seen, url = list[str](), "audit"
    while url:
        text = site.get(url).text
        seen += [row.partition('"')[0] for row in text.split('data-act="')[1:]]
        _, _, link = text.partition('rel="next" href="/pages/')
        url = unescape(link.partition('"')[0])
    wanted = [f"d{number}" for number in range(450)]
    wanted.insert(251, "c-RETRY-APPLIED")
    assert [one for one in seen if one] in (
        wanted,
        [*wanted[:250], wanted[251], wanted[250], *wanted[252:]],
    )


@pytest.mark.parametrize(
    "place", ["!", "", "[]", "[1,2,3,4]", '["2026-01-01T12:00","","",""]', "[" * 5_000]
)
def test_a_page_that_is_none_is_refused(site: ConsoleSite, place: str) -> None:
    cursor = write_cursor(place)[:1_000] or "x"
    answer = site.get(f"audit?{urlencode({'cursor': cursor})}")
    assert answer.status_code == 400
    assert "begin with the newest" in answer.text


def test_what_comes_from_elsewhere_is_text(site: ConsoleSite) -> None:
    hostile = command("CLEAR", HOSTILE, issued_by=HOSTILE, reason=HOSTILE, subscriber=HOSTILE)
    site.publisher.answers["GET /commands"] = {"commands": [hostile], "next": None}
    text = site.get(f"audit?{urlencode({'who': HOSTILE})}", token="admin").text
    assert "alert(1)" in text
    assert "<script>alert" not in text
    assert "<img" not in text


def test_who_may_not_is_led_to_the_form(site: ConsoleSite) -> None:
    assert site.get("audit", token=None).status_code == 303


ACT = {
    "id": 7,
    "at": "2026-01-03T12:00:00Z",
    "caller": "anna",
    "address": "10.0.0.9",
    "operation": "putNode",
    "method": "PUT",
    "object": "/content/site/news",
    "about": {"first": HOSTILE},
    "trace": "t1",
}


def test_writes_of_content_and_acts_on_jobs_are_there_once_for_an_admin(
    site: ConsoleSite, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, audit.LOGGER)
    url = site.publisher.url
    site.publisher.answers["GET /acts"] = {"acts": [ACT]}
    site.publisher.answers["POST /jobs/7/retry"] = {}
    with console_site(
        site.publisher, content_url=url, jobs_urls={"author": url, "Sub2": "http://127.0.0.1:1"}
    ) as other:
        text = other.get("audit", token="admin").text
        assert text.count('data-act="t1"') == 1, "two services tell of one database"
        assert 'href="/pages/content?path=%2Fsite%2Fnews"' in text
        assert "10.0.0.9" in text
        assert "<script>alert" not in text
        assert "The jobs of Sub2 does not answer" in text
        assert "t1" not in rows(other)
        other.post("jobs/7/retry", token="admin")
        path = "/jobs/7/retry"
        [trace] = [trace for sent, trace in site.publisher.traces if sent == path]
        done = {**ACT, "object": path, "method": "POST", "trace": trace, "address": "10.0.0.8"}
        site.publisher.answers["GET /acts"] = {"acts": [done]}

        def joined() -> bool:
            row = other.get("audit", token="admin").text.partition(f'data-act="{trace}"')[2]
            return "127.0.0.1" in row.partition("</tr>")[0]

        eventually(joined, what="the act has its visitor's address")
        text = other.get("audit", token="admin").text
        assert "POST /pages/jobs/7/retry" not in text, "it stands once"
        assert 'href="/pages/jobs/7?at=author"' in text
