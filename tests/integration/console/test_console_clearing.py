"""Clearing a queue from the console: counted, shown, and done once its number is typed."""

import pytest

from tests.harness.console import ConsoleSite, blocked, clear_bound


@pytest.fixture
def site(running: ConsoleSite) -> ConsoleSite:
    running.publisher.forget()
    running.publisher.shows(blocked("sub2"))
    running.publisher.answers["POST /queues/sub2/clear"] = {"command_id": "c1"}
    running.publisher.answers["GET /queues/sub2/clear"] = clear_bound(41, 1)
    return running


def test_what_is_cleared_is_what_was_counted_and_typed(site: ConsoleSite) -> None:
    asked = site.get("queue/clear?agent=main&subscriber=sub2&up_to=41").text
    assert "clear 1" in asked
    wrong = site.post("queue/clear", agent="main", subscriber="sub2", up_to="41", count="1")
    assert wrong.status_code == 400
    assert site.publisher.changes() == []
    form = {"agent": "main", "subscriber": "sub2", "up_to": "41", "count": "1", "typed": "clear 1"}
    assert site.post("queue/clear", **form).status_code == 303
    [(_, path, token, body)] = site.publisher.changes()
    assert (path, token) == ("/queues/sub2/clear", "Bearer operator")
    assert body == {"up_to_offset": 41}, "and nothing that comes later"


def test_a_queue_is_counted_by_its_publisher_else_page_by_page(site: ConsoleSite) -> None:
    site.publisher.answers["GET /queues/sub2/clear"] = clear_bound(9_000, 8_000)
    counted = site.get("queue/clear?agent=main&subscriber=sub2").text
    assert "clear 8000" in counted
    assert "and 7998 more" in counted
    page = site.publisher.answers["GET /queues/sub2"]
    page["next"] = "/queues/sub2?limit=1000&cursor=c"
    site.publisher.answers["GET /queues/sub2/clear"] = clear_bound(41, 0, 30)
    site.publisher.requested.clear()
    read = site.get("queue/clear?agent=main&subscriber=sub2&up_to=41").text
    assert "clear 1" in read
    assert len(site.publisher.requested) == 2, "the first page goes beyond"


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"up_to": "-1", "count": "1", "typed": "clear 1"},
        {"up_to": "²", "count": "1", "typed": "clear 1"},
        {"up_to": "", "count": "1", "typed": "clear 1"},
        {"up_to": "41", "count": "1", "typed": "clear 2"},
        {"up_to": "41", "count": "", "typed": "clear "},
    ],
)
def test_a_forged_clear_changes_nothing(site: ConsoleSite, form: dict[str, str]) -> None:
    answer = site.post("queue/clear", agent="main", subscriber="sub2", **form)
    assert answer.status_code == 400
    assert site.publisher.changes() == []
