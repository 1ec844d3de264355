"""The console's page of content over HTTP: the author's, a subscriber's, and a node's history."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from packhorse_services.console.frame.trees import tree
from tests.harness.console import HOSTILE, ConsoleSite, console_site, distribution
from tests.harness.written_publisher import written_publisher

NONE: dict[str, Any] = {"distributions": [], "next": None}


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[ConsoleSite, ConsoleSite]]:
    """Serve two: what the second one's publisher is asked is what a content service is asked."""
    with (
        written_publisher() as served,
        console_site(content_url=served.url, subscriber_urls={"sub1": served.url}) as site,
    ):
        yield site, ConsoleSite("", served, site.callers)


@pytest.fixture
def site(running: tuple[ConsoleSite, ConsoleSite]) -> ConsoleSite:
    site, content = running
    for one in running:
        one.publisher.forget()
    site.publisher.answers["GET /distributions"] = NONE
    has(content)
    return site


@pytest.fixture
def content(running: tuple[ConsoleSite, ConsoleSite]) -> ConsoleSite:
    return running[1]


def has(content: ConsoleSite, text: str = "News of today", path: str = "/site/news") -> None:
    binary = {"digest": "sha256:ab", "length": 2_048, "media_type": text}
    node = {"path": path, "type": text, "properties": {"title": text, "tags": [1, None, {}]}}
    content.publisher.answers["GET /content/site/news"] = {**node, "binaries": {text: binary}}
    content.publisher.answers["GET /children/site/news"] = {
        "children": [{"path": f"{path}/a b", "type": "page"}],
        "next": "/children/site/news?after=a+b&limit=100",
    }


def test_a_node_is_shown_with_what_it_has_and_what_lies_below(
    site: ConsoleSite, content: ConsoleSite
) -> None:
    text = site.get("content?path=/site/news").text
    assert "News of today" in text
    assert "2.0 KiB" in text
    assert 'href="/pages/content?path=%2Fsite%2Fnews%2Fa+b"' in text
    assert 'href="/pages/content?path=%2Fsite%2Fnews&amp;after=a+b"' in text, "the next page"
    assert {token for _, _, token, _ in content.publisher.requested} == {"Bearer operator"}


def test_a_subscribers_content_is_shown_where_its_address_is_known(site: ConsoleSite) -> None:
    assert "of sub1" in site.get("content?path=/site/news&at=sub1").text
    assert "was not told where sub9" in site.get("content?path=/site/news&at=sub9").text
    assert "There is no node at /other here" in site.get("content?path=/other&at=sub1").text


def test_the_way_in_is_the_root_which_is_no_node(site: ConsoleSite, content: ConsoleSite) -> None:
    below = {"children": [{"path": "/site", "type": "page"}], "next": None}
    content.publisher.answers["GET /children/"] = below
    text = site.get("content").text
    assert 'href="/pages/content?path=%2Fsite"' in text
    assert "There is no node" not in text


@pytest.mark.parametrize("path", ["site", "/..", "/../../readyz", "/pub/../secret"])
def test_what_is_no_path_is_said(site: ConsoleSite, path: str) -> None:
    said = site.get(f"content?path={path}").text
    assert "is not absolute" in said or "has the segment" in said


def test_its_history_is_what_the_publisher_finds_for_the_node(site: ConsoleSite) -> None:
    rows = [distribution("exact", paths=["/site/news"])]
    site.publisher.answers["GET /distributions"] = {"distributions": rows, "next": None}
    text = site.get("content?path=/site/news").text
    assert 'data-distribution="exact"' in text
    asked = [path for _, path, _, _ in site.publisher.requested if "/distributions" in path]
    assert asked == ["/distributions?node=%2Fsite%2Fnews&limit=20"]
    assert 'href="/pages/distributions?agent=main&amp;node=%2Fsite%2Fnews"' in text
    site.publisher.answers["GET /distributions"] = {"distributions": [], "next": "/more"}
    assert "look further back" in site.get("content?path=/site/news").text
    site.publisher.answers["GET /distributions"] = NONE
    assert "No package of the journal had it" in site.get("content?path=/site/news").text


def test_an_agent_that_is_away_hides_no_other_ones_packages(site: ConsoleSite) -> None:
    rows = [distribution("of main", paths=["/site/news"])]
    site.publisher.answers["GET /distributions"] = {"distributions": rows, "next": None}
    agents = {"away": "http://127.0.0.1:1", "main": site.publisher.url, "gone": "http://[::1]:1"}
    with console_site(site.publisher, publisher_urls=agents) as console:
        text = console.get("content?path=/site/news").text
    assert 'data-distribution="of main"' in text
    assert all(f'role="alert">{name}: ' in text for name in ("away", "gone"))


def test_without_the_scope_no_content_service_is_asked(
    site: ConsoleSite, content: ConsoleSite
) -> None:
    assert "needs a token with the scope" in site.get("content", token="viewer").text
    assert content.publisher.requested == []


def test_without_addresses_it_says_how_to_name_them() -> None:
    with console_site() as bare:
        assert "PACKHORSE_CONTENT_URL" in bare.get("content").text


def test_what_comes_from_elsewhere_is_text(site: ConsoleSite, content: ConsoleSite) -> None:
    has(content, HOSTILE, HOSTILE)
    for path in ("/site/news", HOSTILE, "/" + HOSTILE):
        text = site.get(f"content?{urlencode({'path': path})}").text
        assert "<script>alert" not in text
        assert "<img" not in text


def test_a_tree_is_bounded() -> None:
    deep: Any = "end"
    for _ in range(3_000):
        deep = [deep]
    assert tree(deep).parts[0].kind == "list"
    wide = tree({"list": list(range(10_000)), "text": "x" * 10_000})
    assert wide.left_out == 1
    assert len(wide.parts[0].parts) == 499
    assert wide.parts[0].left_out == 9_501
    [text] = tree({"text": "x" * 10_000}).parts
    assert len(text.text) < 2_100
