"""`GET /topology/events` over real connections."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.harness.sse import EventClient
from tests.harness.topology.scripted import Scripted, scripted
from tests.harness.topology.served import Served, served
from tests.harness.waiting import eventually


class Site:
    def __init__(self, made: Scripted, running: Served) -> None:
        self.made, self.running, self.url = made, running, running.url

    @contextmanager
    def follow(self, last_id: str = "") -> Iterator[EventClient]:
        client = EventClient(f"{self.url}/topology", "viewer", last_id)
        try:
            yield client
        finally:
            client.close()


@pytest.fixture
def site() -> Iterator[Site]:
    made = scripted("other", max_streams=2)
    with served(made) as running:
        yield Site(made, running)


def reported(client: EventClient) -> list[str]:
    return [block.event for block in client.blocks if block.data]


def test_init_then_changing_before_changed_then_properties(site: Site) -> None:
    with site.follow() as client:
        client.until(lambda c: reported(c) == ["INIT"])
        assert client.response.headers["content-type"].startswith("text/event-stream")
        assert "no-cache" in client.response.headers["cache-control"]
        site.made.membership.become("me", "other", "third")
        client.until(lambda c: reported(c)[1:] == ["CHANGING", "CHANGED"])
        site.made.membership.describe("third", rack="7")
        client.until(lambda c: reported(c)[3:] == ["PROPERTIES_CHANGED"])
        changing, changed, properties = client.events()[1:]
    assert changing["topology"] is None
    assert changed["added"] == ["third"]
    assert properties["changed"] == ["third"]
    instances = properties["topology"]["clusters"][0]["instances"]
    assert instances[2]["properties"] == {"rack": "7"}
    ids = [block.id for block in client.blocks if block.data]
    assert all(re.fullmatch(r"[0-9a-f]{8}-[0-9]+", one) for one in ids)


def test_who_comes_back_misses_nothing(site: Site) -> None:
    with site.follow() as client:
        client.until(lambda c: reported(c) == ["INIT"])
        last = client.last_id
    site.made.membership.become("other", "me")
    eventually(lambda: len(site.made.feed.history()) == 3, what="the change")
    with site.follow(last) as again:
        again.until(lambda c: reported(c) == ["CHANGING", "CHANGED"])
        [_, changed] = again.events()
    assert changed["leaders"] == [{"cluster_id": "cluster-1", "old": "me", "new": "other"}]


def test_after_a_restart_a_gap_and_a_fresh_init_are_reported(site: Site) -> None:
    with site.follow("00000000-7") as client:
        client.until(lambda c: reported(c) == ["gap", "INIT"])
        assert client.events("gap") == [{"reason": "ANOTHER_PROCESS"}]
        assert client.blocks[1].id in ("", "00000000-7"), "a gap moves nobody on"


def test_streams_are_bounded(site: Site) -> None:
    headers = {"Authorization": "Bearer viewer"}
    with site.follow() as one, site.follow() as two:
        for client in (one, two):
            client.until(reported)
        refused = httpx.get(f"{site.url}/topology/events", headers=headers, timeout=120)
        assert refused.status_code == 429
        assert refused.json()["type"] == "/problems/too-many-streams"
        assert int(refused.headers["Retry-After"]) > 0
    eventually(lambda: _may_follow(site), what="a place again")


def _may_follow(site: Site) -> bool:
    try:
        with site.follow():
            return True
    except AssertionError:
        return False


def test_streams_end_cleanly_when_the_process_is_asked_to_end(site: Site) -> None:
    with site.follow() as client:
        client.until(lambda c: reported(c) == ["INIT"])
        assert site.running.end()
        eventually(lambda: client.clean_end is not None, what="the end")
        assert client.clean_end
