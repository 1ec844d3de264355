"""Binaries as files: what a browser may do with them, and who gets them."""

import hashlib
from collections.abc import Iterator
from urllib.parse import quote, urlencode

import pytest

from tests.harness.console import HOSTILE, ConsoleSite, console_site
from tests.harness.written_publisher import WrittenPublisher, written_publisher

CONTENT = b"<script>alert(1)</script>"
NAME = "n\u00e9ws.html"


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[ConsoleSite, WrittenPublisher, WrittenPublisher]]:
    with (
        written_publisher() as author,
        written_publisher() as there,
        console_site(content_url=author.url, subscriber_urls={"sub1": there.url}) as site,
    ):
        yield site, author, there


@pytest.fixture
def site(running: tuple[ConsoleSite, WrittenPublisher, WrittenPublisher]) -> ConsoleSite:
    site, author, there = running
    for content in (author, there):
        content.forget()
        has(content, "data", "picture/one", HOSTILE)
    return site


def has(content: WrittenPublisher, *names: str, sent: bytes = CONTENT) -> None:
    """Let a node have binaries of the same bytes; `sent` is what comes for them."""
    digest = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
    one = {"digest": digest, "length": len(CONTENT), "media_type": "text/html"}
    node = {"path": f"/site/{NAME}", "type": "page", "properties": {}}
    node["binaries"] = dict.fromkeys(names, one)
    content.answers[f"GET /content/site/{quote(NAME)}"] = node
    content.answers[f"GET /children/site/{quote(NAME)}"] = {"children": [], "next": None}
    headers = {"Content-Range": f"bytes 0-{len(sent) - 1}/{len(CONTENT)}", "ETag": f'"{digest}"'}
    content.answers[f"GET /blobs/{quote(digest, safe='')}"] = (206, sent, headers)


def address(path: str = f"/site/{NAME}", **more: str) -> str:
    return f"content/binary?{urlencode({'path': path, **more})}"


@pytest.mark.parametrize("at", ["", "sub1"])
def test_a_binary_is_a_file_and_never_a_page(
    site: ConsoleSite, running: tuple[ConsoleSite, WrittenPublisher, WrittenPublisher], at: str
) -> None:
    answer = site.get(address(at=at))
    assert (answer.status_code, answer.content) == (200, CONTENT)
    headers = answer.headers
    assert headers["content-type"] == "application/octet-stream"
    assert headers["content-disposition"] == "attachment; filename*=UTF-8''n%C3%A9ws.html"
    assert headers["content-security-policy"].startswith("sandbox; default-src 'none'")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"
    assert headers["content-length"] == str(len(CONTENT))
    asked = running[2 if at else 1].requested
    assert {token for _, _, token, _ in asked} == {"Bearer operator"}
    assert running[1 if at else 2].requested == []


def test_names_are_of_a_file_in_no_folder_and_of_no_header(site: ConsoleSite) -> None:
    named = {
        name: site.get(address(name=name)).headers["content-disposition"]
        for name in ("picture/one", HOSTILE)
    }
    assert named["picture/one"] == "attachment; filename*=UTF-8''picture_one"
    assert named[HOSTILE].startswith("attachment; filename*=UTF-8''%3C_td%3E%3Cscript%3E")
    page = site.get(f"content?path=/site/{NAME}").text
    assert "name=picture%2Fone" in page
    assert "<script>alert" not in page


@pytest.mark.parametrize(
    ("given", "token", "status"),
    [
        ({"name": "other"}, "operator", 404),
        ({"path": "/site/none"}, "operator", 404),
        ({"at": "sub2"}, "operator", 404),
        ({}, "viewer", 403),
        ({}, None, 303),
        ({"path": "/" + "x" * 2_048}, "operator", 422),
        ({"path": ""}, "operator", 409),
        ({"path": "/site/../n"}, "operator", 409),
        ({"name": "x" * 256}, "operator", 422),
    ],
)
def test_who_gets_none(
    site: ConsoleSite, given: dict[str, str], token: str | None, status: int
) -> None:
    answer = site.get(address(**{"path": f"/site/{NAME}", **given}), token)
    assert answer.status_code == status
    assert CONTENT not in answer.content


def test_other_bytes_than_the_node_has_are_not_sent(
    site: ConsoleSite, running: tuple[ConsoleSite, WrittenPublisher, WrittenPublisher]
) -> None:
    has(running[1], "data", sent=CONTENT[::-1])
    answer = site.get(address())
    assert (answer.status_code, CONTENT[::-1] in answer.content) == (409, False)
    assert "gave other bytes" in answer.text


def test_places_are_given_back(site: ConsoleSite) -> None:
    assert {site.get(address()).status_code for _ in range(10)} == {200}
    assert {site.get(address(name="other")).status_code for _ in range(10)} == {404}
