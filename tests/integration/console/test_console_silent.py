"""Services that do not answer: pages say which, in the frame; and wait for those that live."""

import socket
from collections.abc import Iterator

import pytest

from packhorse_services.console import upstream
from tests.harness.console import ConsoleSite, console_site, queue
from tests.harness.waiting import eventually


@pytest.fixture(scope="module")
def silent() -> Iterator[str]:
    """Take connections and answer nothing, as a process does that is stopped."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture(scope="module")
def site(silent: str) -> Iterator[ConsoleSite]:
    jobs = {"stopped": silent, "gone": "http://127.0.0.1:1"}
    with console_site(jobs_urls=jobs, lives_s=3.0) as served:
        yield served


@pytest.mark.parametrize("name", ["stopped", "gone"])
def test_the_page_says_who_does_not_answer_and_leads_on(
    site: ConsoleSite, silent: str, name: str
) -> None:
    answer = site.get(f"jobs?at={name}")
    assert answer.status_code == 503
    assert 'aria-label="Pages"' in answer.text
    assert 'href="/pages/overview"' in answer.text
    assert "the jobs service: " in answer.text
    assert (silent if name == "stopped" else "http://127.0.0.1:1") in answer.text
    assert "See whether the service runs there" in answer.text


def test_a_service_that_lives_may_take_its_time(
    site: ConsoleSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream, "_LIVES_S", 120.0)
    publisher = site.publisher
    before = publisher.looks
    publisher.answers["GET /livez"] = {}

    def slow(_query: object) -> dict[str, object]:
        eventually(lambda: publisher.looks > before, what="a look")
        return {"agent": "main", "queues": [queue("sub1")]}

    publisher.answers["GET /queues"] = slow
    assert 'data-queue="sub1"' in site.get("overview").text


def test_what_is_wrong_with_a_request_is_said_in_the_frame(site: ConsoleSite) -> None:
    for path, status in (("overview?nonsense=1", 422), ("queue?agent=other&subscriber=x", 404)):
        answer = site.get(path, Accept="text/html")
        assert answer.status_code == status
        assert 'aria-label="Pages"' in answer.text
    unknown = site.get("overview/content", token=None, Accept="text/html")
    assert unknown.status_code == 401
    assert 'aria-label="Pages"' not in unknown.text
