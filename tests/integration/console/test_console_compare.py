"""The console's comparison over HTTP: what differs at subscribers, side by side, and mending it."""

import hashlib
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from packhorse.runtime import audit
from packhorse_services.console.explore import comparisons
from tests.harness.console import HOSTILE, OPERATOR, ConsoleSite, console_site, distribution, queue
from tests.harness.waiting import eventually
from tests.harness.written_publisher import WrittenPublisher, written_publisher

SEEN = hashlib.sha256(
    json.dumps(
        [["different", "/site/other"], ["extra", "/site/alone"], ["missing", "/site/lacks"]]
    ).encode()
).hexdigest()
FORM = {"path": "/site", "subscriber": "sub1", "agent": "main", "key": "k1", "seen": SEEN}
DELETION = {
    "action": "DELETE",
    "paths": ["/site/alone"],
    "targets": ["sub1"],
    "only_if_absent": True,
}
AS_OPERATOR = {"Authorization": "Bearer operator"}
AUTHOR = {"/site": "1", "/site/same": "2", "/site/other": "3", "/site/lacks": "4"}
THERE = {"/site": "1", "/site/same": "2", "/site/other": "x", "/site/alone": "5"}


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[ConsoleSite, WrittenPublisher, WrittenPublisher]]:
    with (
        written_publisher() as author,
        written_publisher() as there,
        console_site(
            content_url=author.url, subscriber_urls={"sub1": there.url, "sub2": author.url}
        ) as site,
    ):
        yield site, author, there


@pytest.fixture
def site(running: tuple[ConsoleSite, WrittenPublisher, WrittenPublisher]) -> ConsoleSite:
    site, author, there = running
    for one in (site.publisher, author, there):
        one.forget()
    site.publisher.shows(queue("sub1"), queue("sub2"))
    accepted = {**distribution("d1"), "repeated": False}
    site.publisher.answers["POST /distribute"] = accepted
    has(author, AUTHOR)
    has(there, THERE)
    return site


def has(content: WrittenPublisher, digests: dict[str, str]) -> None:
    def page(query: dict[str, str]) -> dict[str, Any]:
        low, high = query.get("after", ""), query.get("up_to", "~")
        inside = [path for path in sorted(digests) if low < path <= high]
        return {"nodes": [{"path": one, "digest": digests[one]} for one in inside], "next": None}

    content.answers["GET /digests/site"] = page


def sent(site: ConsoleSite) -> list[Any]:
    return [body for _, _, _, body in site.publisher.changes()]


def test_whether_a_subtree_is_equal_is_shown_for_each_subscriber(site: ConsoleSite) -> None:
    text = site.get("compare?path=/site&asked=1").text
    first, second = text.partition('data-compared="sub2"')[::2]
    assert "differs" in first
    assert "equal" in second
    assert "data-compared" not in site.get("compare?path=/site").text, "not before it is asked"


def test_r35_a_program_compares_with_one_request(
    site: ConsoleSite, running: tuple[ConsoleSite, WrittenPublisher, WrittenPublisher]
) -> None:
    def asked(token: str | None = "operator", path: str = "site", **query: Any) -> httpx.Response:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx.get(
            f"{site.url}/compare/{path}", params=query, headers=headers, timeout=120, verify=False
        )

    found = asked(subscriber="sub1").json()
    kinds = {one["path"]: one["kind"] for one in found["differences"]}
    assert kinds == {
        "/site/alone": "extra",
        "/site/lacks": "missing",
        "/site/other": "different",
    }
    assert (found["nodes"], found["under_way"], found["next"]) == (4, 0, None)
    assert asked(subscriber="sub2").json()["differences"] == []
    assert len(asked(subscriber="sub1", other="sub2").json()["differences"]) == 3
    assert asked(None, subscriber="sub1").status_code == 401
    assert asked(subscriber="nobody").status_code == 404
    assert asked(subscriber="sub1", wrong="1").status_code == 422
    assert asked(subscriber="sub1", after="x").status_code == 422
    meanwhile: list[httpx.Response] = []
    running[2].meanwhile.append(lambda: meanwhile.append(asked(subscriber="sub1")))
    assert asked(subscriber="sub1").status_code == 200
    assert meanwhile[0].status_code == 429


@pytest.mark.parametrize(("answered", "status"), [(429, 429), (520, 503), (302, 503)])
def test_what_a_service_refuses_is_refused_and_a_proxys_own_status_is_503(
    site: ConsoleSite,
    running: tuple[ConsoleSite, WrittenPublisher, WrittenPublisher],
    answered: int,
    status: int,
) -> None:
    running[2].answers["GET /digests/site"] = (answered, {}, {"Retry-After": "7"})
    answer = compared(site)
    assert (answer.status_code, answer.headers["Retry-After"]) == (status, "7")


def test_a_subtree_that_takes_too_long_is_not_to_be_asked_for_again(
    site: ConsoleSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparisons, "_PATIENCE_S", 0)
    answer = compared(site)
    assert (answer.status_code, "Retry-After" in answer.headers) == (422, False)


def compared(site: ConsoleSite) -> httpx.Response:
    url = f"{site.url}/compare/site?subscriber=sub1"
    return httpx.get(url, headers=AS_OPERATOR, timeout=120)


def test_r35_without_an_agent_it_is_the_first_that_the_token_is_for(
    site: ConsoleSite, running: tuple[ConsoleSite, WrittenPublisher, WrittenPublisher]
) -> None:
    _, author, there = running
    publishers = {"others": "http://127.0.0.1:1", "main": site.publisher.url}
    contents = {"content_url": author.url, "subscriber_urls": {"sub1": there.url}}
    with console_site(site.publisher, publisher_urls=publishers, **contents) as console:
        console.callers.known["ours"] = replace(OPERATOR, agents=("main",))
        headers = {"Authorization": "Bearer ours"}
        url = f"{console.url}/compare/site?subscriber=sub1"
        assert len(httpx.get(url, headers=headers, timeout=120).json()["differences"]) == 3


def test_r35_a_program_follows_the_pages_of_a_comparison(
    site: ConsoleSite, running: tuple[ConsoleSite, WrittenPublisher, WrittenPublisher]
) -> None:
    lacks = ["/site/a&b", "/site/a+b", "/site/a/ö", "/site/c d"]
    has(running[1], {**AUTHOR, **dict.fromkeys(lacks, "1")})
    has(running[2], AUTHOR)
    following, found, nodes = "/compare/site?subscriber=sub1&limit=1", [], 0
    while following is not None:
        answer = httpx.get(site.url + following, headers=AS_OPERATOR, timeout=120)
        page = answer.json()
        assert len(page["differences"]) <= 1
        assert ("Link" in answer.headers) is (page["next"] is not None)
        found += [one["path"] for one in page["differences"]]
        following, nodes = page["next"], nodes + page["nodes"]
    assert (found, nodes) == (lacks, len(AUTHOR) + len(lacks))


def test_a_caller_has_one_comparison_at_a_time_and_others_have_theirs(
    site: ConsoleSite, running: tuple[ConsoleSite, WrittenPublisher, WrittenPublisher]
) -> None:
    page = "compare?path=/site&subscriber=sub1"
    meanwhile: list[Any] = []

    def ask(token: str) -> None:
        meanwhile.append(site.get(page, token))

    for token in ("operator", "admin"):
        running[2].meanwhile.append(partial(ask, token))
        assert 'data-differs="/site/other"' in site.get(page).text
    assert [one.status_code for one in meanwhile] == [429, 200]
    assert "try again" in meanwhile[0].text
    running[2].meanwhile.append(
        lambda: meanwhile.append(site.post("compare/mend", **FORM, count="3", typed="mend 3"))
    )
    assert site.get(page).status_code == 200
    assert (meanwhile[2].status_code, sent(site)) == (429, [])


def test_a_path_that_nobody_has_is_not_equal(
    site: ConsoleSite, running: tuple[ConsoleSite, WrittenPublisher, WrittenPublisher]
) -> None:
    for one in running[1:]:
        has(one, {})
    text = site.get("compare?path=/site&asked=1").text
    assert text.count("There is no node at /site") == 2
    assert "equal</span>" not in text
    has(running[2], {"/site": "1"})
    text = site.get("compare?path=/site&asked=1").text
    first, second = text.partition('data-compared="sub2"')[::2]
    assert ("no node" in first, "no node" in second) == (False, True), "sub1 has it alone"


def test_what_differs_is_shown_node_by_node_and_side_by_side(
    site: ConsoleSite, running: tuple[ConsoleSite, WrittenPublisher, WrittenPublisher]
) -> None:
    for one, title in zip(running[1:], ("Of the author", "Of before"), strict=True):
        node = {"path": "/site/other", "type": "page", "properties": {"title": title, "same": 1}}
        one.answers["GET /content/site/other"] = {**node, "binaries": {}}
    text = site.get("compare?path=/site&subscriber=sub1&show=/site/other").text
    for path in ("/site/other", "/site/lacks", "/site/alone"):
        assert f'data-differs="{path}"' in text
    assert 'data-differs="/site/same"' not in text
    assert text.index("Of the author") < text.index("Of before")
    assert text.index("title") < text.index(">same<"), "what differs comes first"


def test_what_was_seen_is_mended_at_that_subscriber_alone(
    site: ConsoleSite, caplog: pytest.LogCaptureFixture
) -> None:
    asked = site.post("compare/mend", **FORM, count="3", typed="mend")
    assert (asked.status_code, sent(site)) == (400, [])
    caplog.set_level(logging.INFO, audit.LOGGER)
    done = site.post("compare/mend", **FORM, count="3", typed="mend 3")
    assert done.headers["location"] == "/pages/distribution?agent=main&number=d1"
    lines = eventually(
        lambda: [vars(one) for one in caplog.records if hasattr(one, "mended")], what="a line"
    )
    [line] = lines or []
    assert (line["distribution"], line["targets"], line["mended"]) == ("d1, d1", "sub1", 3)
    assert sent(site) == [
        DELETION,
        {"action": "ADD", "paths": ["/site/lacks", "/site/other"], "targets": ["sub1"]},
    ]


def test_what_the_author_has_changed_meanwhile_is_named(site: ConsoleSite) -> None:
    pointer = {"pointer": "#/paths/0", "detail": "changed"}
    refusal = {"type": "/problems/path-present", "title": "It is there", "errors": [pointer]}
    site.publisher.answers["POST /distribute"] = (409, {**refusal, "status": 409})
    text = site.post("compare/mend", **FORM, count="3", typed="mend 3").text
    for path in ("/site/alone", "/site/lacks", "/site/other"):
        assert path in text.partition("Left out")[2].partition("</p>")[0]
    assert sent(site)[0] == DELETION


@pytest.mark.parametrize(
    "form",
    [
        {"count": "3", "typed": "mend 2"},
        {"count": "0", "typed": "mend 0", "subscriber": "sub2"},
        {"count": "3", "typed": "mend 3", "seen": ""},
        {"count": "3", "typed": "mend 3", "key": ""},
        {},
    ],
)
def test_nothing_but_what_was_seen_is_mended(site: ConsoleSite, form: dict[str, str]) -> None:
    assert site.post("compare/mend", **{**FORM, **form}).status_code == 400
    assert sent(site) == []


def test_what_differs_otherwise_than_what_was_seen_is_not_mended(
    site: ConsoleSite, running: tuple[ConsoleSite, WrittenPublisher, WrittenPublisher]
) -> None:
    assert f'name="seen" value="{SEEN}"' in site.get("compare?path=/site&subscriber=sub1").text
    has(running[2], {**AUTHOR, "/site/a": "1", "/site/b": "1", "/site/c": "1"})
    done = site.post("compare/mend", **FORM, count="3", typed="mend 3")
    assert (done.status_code, "has changed" in done.text, sent(site)) == (400, True, [])


def test_nothing_is_mended_where_no_address_is_known(site: ConsoleSite) -> None:
    done = site.post("compare/mend", **{**FORM, "subscriber": "x"}, count="3", typed="mend 3")
    assert (done.status_code, "was not told" in done.text) == (409, True)
    assert "was not told" in site.get("compare?path=/site&subscriber=x").text
    with console_site() as bare:
        assert "PACKHORSE_CONTENT_URL" in bare.get("compare").text
        assert bare.post("compare/mend", **FORM, count="3", typed="mend 3").status_code == 409


@pytest.mark.parametrize(
    ("token", "sent_from", "status"),
    [("viewer", "same-origin", 403), (None, "same-origin", 401), ("operator", "cross-site", 403)],
)
def test_who_may_not_changes_nothing(
    site: ConsoleSite, token: str | None, sent_from: str, status: int
) -> None:
    done = site.post("compare/mend", token, sent_from, **FORM, count="3", typed="mend 3")
    assert (done.status_code, sent(site)) == (status, [])
    assert "needs a token" in site.get("compare?path=/site&asked=1", token="viewer").text


def test_what_comes_from_elsewhere_is_text(
    site: ConsoleSite, running: tuple[ConsoleSite, WrittenPublisher, WrittenPublisher]
) -> None:
    has(running[2], {HOSTILE: "1", "/site/<script>alert": "2"})
    for query in ({"path": "/site", "subscriber": "sub1", "show": HOSTILE}, {"path": HOSTILE}):
        text = site.get(f"compare?{urlencode({**query, 'asked': '1'})}").text
        assert "<script>alert" not in text
        assert "<img" not in text
