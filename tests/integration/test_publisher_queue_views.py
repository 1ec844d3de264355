"""R15-R17 over HTTP: filters, the slowest, queues older than the cache, a journal that is away."""

from pathlib import Path
from typing import Any

import pytest

from packhorse.wire.messages import SubscriptionState
from packhorse_services.publisher.queues.cache import scanning
from packhorse_services.publisher.queues.cache.ranges import RangeFetch
from tests.harness.publisher_service import PublisherService
from tests.harness.publishing import page

PAGES = [f"/content/{name}" for name in ("a", "a/one", "ab", "b")]


@pytest.fixture
def service(database_url: str, tmp_path: Path) -> PublisherService:
    service = PublisherService(database_url, tmp_path)
    service.author.write(*map(page, ["/content", *PAGES]))
    return service


async def fill(s: PublisherService) -> None:
    """Offsets 0 to 3 add a page each, 4 and 5 delete and invalidate one, 6 adds the whole tree."""
    await s.announce("sub1", -1)
    for path in PAGES:
        await s.accepted(path)
    await s.accepted("/content/b", action="DELETE")
    await s.accepted("/content/a/one", action="INVALIDATE")
    await s.accepted(deep_paths=["/content/a"])

    async def seen() -> bool:
        return bool((await s.get("/queues/sub1"))["length"] == 7)

    await s.until(seen)


async def offsets(s: PublisherService, query: str) -> list[int]:
    """Follow the links of a queue to its end."""
    following: str | None = f"/queues/sub1?{query}"
    shown: list[int] = []
    while following:
        answer = await s.client.get(following)
        assert answer.status_code == 200, answer.text
        document = answer.json()
        shown += [entry["offset"] for entry in document["entries"]]
        following = document["next"]
        assert answer.headers.get("link") == (f'<{following}>; rel="next"' if following else None)
    return shown


def test_r15_r29_a_queue_is_filtered_by_path_and_action(service: PublisherService) -> None:
    async def scenario(s: PublisherService) -> None:
        await fill(s)
        for limit in (1, 2, 100):
            assert await offsets(s, f"limit={limit}&path_prefix=/content/a") == [0, 1, 5, 6]
            assert await offsets(s, f"limit={limit}&action=DELETE") == [4]
            assert await offsets(s, f"limit={limit}&action=ADD&path_prefix=/content/b") == [3]
            assert await offsets(s, f"limit={limit}&path_prefix=/") == list(range(7))
            assert await offsets(s, f"limit={limit}&path_prefix=/content/c") == []
        whole = await s.get("/queues/sub1?action=DELETE")
        assert (whole["length"], whole["head"]["offset"]) == (7, 0)
        for wrong in ("path_prefix=content", "path_prefix=/a/", "path_prefix=/a//b", "action=TEST"):
            refused = await s.client.get(f"/queues/sub1?{wrong}")
            assert (refused.status_code, refused.json()["type"]) == (
                422,
                "/problems/invalid-request",
            )

    service.run(scenario)


def test_each_filter_and_page_has_its_own_tag(service: PublisherService) -> None:
    async def scenario(s: PublisherService) -> None:
        await fill(s)
        second = (await s.get("/queues/sub1?limit=2"))["next"]
        urls = [
            *("/queues/sub1", "/queues/sub1?action=ADD", "/queues/sub1?path_prefix=/content/a"),
            *("/queues/sub1?limit=2", second),
        ]
        tags = [(await s.client.get(url)).headers["etag"] for url in urls]
        assert len(set(tags)) == len(urls)
        for url, tag in zip(urls, tags, strict=True):
            for other in tags:
                answer = await s.client.get(url, headers={"If-None-Match": other})
                assert answer.status_code == (304 if other == tag else 200)

    service.run(scenario)


def test_a_filtered_page_costs_a_bounded_amount_of_looking(
    service: PublisherService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "SCAN", 1)
    monkeypatch.setattr("packhorse_services.publisher.queues.cache.columns._ENTRIES", 2)

    async def scenario(s: PublisherService) -> None:
        await fill(s)
        short = await s.get("/queues/sub1?action=DELETE")
        assert (short["entries"], short["next"] is None) == ([], False)
        assert await offsets(s, "action=DELETE") == [4]

    service.run(scenario)


def test_the_slowest_of_the_editable_and_of_all(service: PublisherService) -> None:
    async def scenario(s: PublisherService) -> None:
        nobody = await s.get("/queues")
        assert (nobody["slowest"], nobody["slowest_editable"], nobody["queues"]) == (None, None, [])
        await fill(s)
        await s.announce("sub1", 4)
        await s.announce("sub2", 1, retries=3, last_error="boom", state=SubscriptionState.BLOCKED)
        one_kind = await s.get("/queues")
        assert (one_kind["slowest"]["subscriber"], one_kind["slowest_editable"]) == ("sub2", None)
        await s.announce("sub 3", 2, editable=True)
        await s.announce("sub4", 3, editable=True)
        overview = await s.get("/queues")
        slowest, editable = overview["slowest"], overview["slowest_editable"]
        assert (slowest["length"], slowest["state"], slowest["offset"]) == (5, "BLOCKED", 1)
        assert (slowest["head"]["offset"], slowest["head"]["last_error"]) == (2, "boom")
        assert (editable["subscriber"], editable["length"]) == ("sub 3", 4)
        assert (await s.get(editable["queue"]))["length"] == 4
        lengths = {one["subscriber"]: one["length"] for one in overview["queues"]}
        assert lengths == {"sub1": 2, "sub2": 5, "sub 3": 4, "sub4": 3}

    service.run(scenario)


def test_a_subscriber_is_shown_whole(service: PublisherService) -> None:
    async def scenario(s: PublisherService) -> None:
        await fill(s)
        reported: dict[str, Any] = {"blocked_since_ms": 10**12, "next_attempt_ms": 10**12 + 5000}
        await s.announce("sub1", 2, retries=2, last_error="boom", settled_offset=1, **reported)
        assert (await s.get("/subscribers/sub1"))["incomplete"] is False
        shown = await s.get("/subscribers/sub1")
        assert shown["behind"] == shown["behind_at_least"] == shown["behind_at_most"] == 4
        assert (shown["offset"], shown["settled_offset"], shown["attempts"]) == (2, 1, 2)
        assert shown["blocked_since"] == "2001-09-09T01:46:40Z"
        assert shown["next_attempt_at"] == "2001-09-09T01:46:45Z"
        assert [shown] == [
            {**one, "lag_seconds": shown["lag_seconds"]}
            for one in (await s.get("/subscribers"))["subscribers"]
        ]
        await s.announce("sub1", 3, started_offset=2, settled_offset=3, incomplete=True)
        shown = await s.get("/subscribers/sub1")
        assert (shown["started_offset"], shown["incomplete"]) == (2, True)

    service.run(scenario)


def restarted(
    service: PublisherService, database_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> PublisherService:
    """A publisher that came after all packages, and whose cache has room for nothing older."""
    service.run(fill)
    monkeypatch.setattr(RangeFetch, "fetch_above", lambda self, _: setattr(self, "full", True))
    return PublisherService(database_url, folder)


def test_r17_one_slow_subscriber_hides_no_other(
    service: PublisherService, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(s: PublisherService) -> None:
        await s.announce("late", -1, retries=3, last_error="boom")
        await s.announce("done", 6)
        overview = {one["subscriber"]: one for one in (await s.get("/queues"))["queues"]}
        assert (overview["done"]["length"], overview["done"]["state"]) == (0, "IDLE")
        late = overview["late"]
        assert (late["length"], late["at_least"], late["at_most"]) == (None, 0, 7)
        assert (late["length_unknown"], late["state"]) == ("TOO_LONG", "BLOCKED")
        assert (late["head"]["offset"], late["head"]["attempts"]) == (None, 3)
        assert late["lag_seconds"] is None
        queue = await s.get("/queues/late?limit=2")
        assert [entry["offset"] for entry in queue["entries"]] == [0, 1]
        assert (queue["head"]["offset"], queue["length"]) == (0, None)
        assert queue["lag_seconds"] is not None
        deletes = await s.get("/queues/late?action=DELETE")
        assert [entry["offset"] for entry in deletes["entries"]] == [4]
        assert deletes["head"]["offset"] == 0

    restarted(service, database_url, tmp_path, monkeypatch).run(scenario)


def test_a_journal_that_is_away_keeps_nobody_waiting(
    service: PublisherService, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(s: PublisherService) -> None:
        await s.announce("late", -1)
        await s.get("/queues/late")
        s.journal.away = True
        answer = await s.client.get("/queues/late")
        assert (answer.status_code, answer.json()["type"]) == (503, "/problems/unavailable")
        assert int(answer.headers["retry-after"]) > 0
        late = (await s.get("/queues"))["queues"][0]
        assert late["subscriber"] == "late"
        assert (late["at_least"], late["at_most"]) == (0, 7)
        s.journal.away = False
        assert len((await s.get("/queues/late"))["entries"]) == 7

    restarted(service, database_url, tmp_path, monkeypatch).run(scenario)
