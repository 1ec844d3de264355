"""A subscriber that is gone for good can be forgotten, and is known again when it comes back."""

from pathlib import Path

import pytest

from packhorse.wire.messages import DiscoveryMessage, SubscriberState
from tests.harness.publisher_service import PublisherService
from tests.harness.publisher_site import Site, publish, states, until_remembered
from tests.harness.publishing import TOPICS

AGO = "UPDATE bookkeeping.known_subscriber SET seen_at = now() - interval '{}' RETURNING agent"
"""Let every announcement be so old."""


@pytest.fixture
def site(database_url: str, tmp_path: Path) -> Site:
    return Site(database_url, tmp_path)


async def names(s: PublisherService) -> list[str]:
    return [one["subscriber"] for one in (await s.get("/subscribers"))["subscribers"]]


@pytest.mark.parametrize("ago", ["2 minutes", "2 days"])
def test_a_subscriber_that_is_gone_is_forgotten_until_it_comes_back(site: Site, ago: str) -> None:
    ids: list[str] = []

    async def before(s: PublisherService) -> None:
        ids.extend(await publish(s, 2))
        await s.announce("gone", 0)
        live = await s.client.delete("/subscribers/gone")
        assert (live.status_code, live.json()["type"]) == (409, "/problems/subscriber-live")
        assert "30 s" in live.json()["detail"]
        until_remembered(s, 1)

    async def forget(s: PublisherService) -> None:
        assert await names(s) == (["gone"] if ago == "2 minutes" else [])
        assert "gone" in await states(s, ids[0])
        assert (await s.client.delete("/subscribers/gone")).status_code == 204
        assert await names(s) == []
        assert (await s.get("/queues"))["queues"] == []
        assert await states(s, ids[0]) == {}
        for name in ("gone", "nobody"):
            unknown = await s.client.delete(f"/subscribers/{name}")
            assert unknown.status_code == 404
            assert unknown.json()["type"] == "/problems/unknown-subscriber"
        audited = "SELECT subscriber, issued_by FROM bookkeeping.audit WHERE action = 'FORGET'"
        assert s.author.rows(audited) == [("gone", "admin")]

    async def come_back(s: PublisherService) -> None:
        assert await names(s) == []
        assert await states(s, ids[0]) == {}
        await s.announce("gone", 1)
        assert await names(s) == ["gone"]
        assert await states(s, ids[1]) == {"gone": "IMPORTED"}

    site.run(before)
    site.rows(AGO.format(ago))
    site.recreate(TOPICS.discovery)
    site.run(forget)
    site.run(come_back)


def test_who_lives_and_follows_the_agent_no_more_is_forgotten_there(site: Site) -> None:
    """Its row would otherwise forbid to discard packages for as long as it lives."""

    async def forget(s: PublisherService) -> None:
        await publish(s, 1)
        await s.announce("sub", 0)
        until_remembered(s, 1)
        s.report(DiscoveryMessage("sub", (SubscriberState("other", 0),)))

        async def heard() -> bool:
            return await names(s) == []

        await s.until(heard)
        assert (await s.client.delete("/subscribers/sub")).status_code == 204
        assert (await s.client.delete("/subscribers/sub")).status_code == 404

    site.run(forget)
