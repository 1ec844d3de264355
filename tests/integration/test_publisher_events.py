"""The event topic: one CloudEvent a package, true, in order, through restarts."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from packhorse.messaging.api import Record
from packhorse.wire.messages import Status
from packhorse_services.publisher.outcomes import event_publisher
from tests.harness.publisher_service import PublisherService
from tests.harness.publisher_site import Site, events, publish, reported, until_remembered
from tests.harness.publishing import AGENT, TOPICS
from tests.harness.yaml_text import parsed

KINDS = ("imported", "removed", "failed", "skipped", "away")


@pytest.fixture
def site(database_url: str, tmp_path: Path) -> Site:
    return Site(database_url, tmp_path)


def check_against_document(record: Record) -> None:
    """Hold an event to what `asyncapi/events.yaml` says of it."""
    document = parsed((Path(__file__).parents[2] / "asyncapi" / "events.yaml").read_text())
    message = document["components"]["messages"]["PackageDistributed"]
    headers = {name: text.decode() for name, text in record.headers.items()}
    for part, value in (("headers", headers), ("payload", json.loads(record.value))):
        schema = {**message[part], "components": document["components"]}
        Draft202012Validator(schema).validate(value)


def test_one_event_a_package_when_all_live_subscribers_are_done(site: Site) -> None:
    ids: list[str] = []

    async def first(s: PublisherService) -> None:
        ids.extend(await publish(s, 3))
        await s.accepted(action="TEST")
        await s.announce("slow", -1)
        await s.announce("fast", 3)
        for name, offset, status in (
            ("fast", 1, Status.REMOVED),
            ("slow", 1, Status.REMOVED_FAILED),
            ("slow", 2, Status.SKIPPED),
        ):
            s.status(name, offset, status, package_id=ids[offset])
        assert events(s) == [], "one of them is not done with any"
        await s.announce("joined", 3, started_offset=1)
        await s.announce("slow", 1)
        assert [one["package_id"] for one in await reported(s, 2)] == ids[:2]

    async def second(s: PublisherService) -> None:
        assert len(events(s)) == 2
        await s.announce("slow", 3)
        await reported(s, 3)
        ids.append((await s.accepted("/p4"))["id"])
        for name in ("fast", "slow", "joined"):
            await s.announce(name, 4)
        found = await reported(s, 4)
        assert [one["package_id"] for one in found] == ids
        assert [one["offset"] for one in found] == [0, 1, 2, 4]
        shown = [{kind: one[kind] for kind in KINDS if one[kind]} for one in found]
        assert shown == [
            {"imported": ["fast", "slow"], "skipped": ["joined"]},
            {"removed": ["fast"], "failed": ["slow"], "skipped": ["joined"]},
            {"imported": ["fast", "joined"], "skipped": ["slow"]},
            {"imported": ["fast", "joined", "slow"]},
        ]
        for record in events(s):
            check_against_document(record)
        [record] = events(s)[:1]
        assert record.headers["ce_id"].decode() == ids[0]
        assert record.headers["ce_source"].decode() == f"/packhorse/{AGENT}"
        assert record.key == AGENT

    site.run(first)
    site.run(second)


def test_nobody_live_no_event_and_who_is_away_is_named(site: Site) -> None:
    ids: list[str] = []

    async def before(s: PublisherService) -> None:
        ids.extend(await publish(s, 1))
        await s.announce("away", -1)
        until_remembered(s, 1)

    async def after(s: PublisherService) -> None:
        assert (await s.get("/queues/away"))["state"] == "STALE"
        assert events(s) == []
        await s.announce("here", 0)
        [event] = await reported(s, 1)
        assert (event["imported"], event["away"]) == (["here"], ["away"])

    site.run(before)
    site.rows(
        "UPDATE bookkeeping.known_subscriber SET seen_at = now() - interval '1 minute' "
        "RETURNING agent"
    )
    site.recreate(TOPICS.discovery)
    site.run(after)


def test_r35_what_is_left_out_keeps_no_package_from_being_distributed(site: Site) -> None:
    async def scenario(s: PublisherService) -> None:
        ids = await publish(s, 2)
        for offset, left_out in ((0, True), (1, False)):
            package = {"package_id": ids[offset], "left_out": left_out}
            s.status("part", offset, Status.SKIPPED, **package)
        await s.announce("part", 1)
        found = [(one["state"], one["skipped"]) for one in await reported(s, 2)]
        assert found == [("DISTRIBUTED", ["part"]), ("PARTLY_DISTRIBUTED", ["part"])]

    site.run(scenario)


def test_r31_a_status_of_another_package_at_the_offset_counts_for_nothing(site: Site) -> None:
    async def scenario(s: PublisherService) -> None:
        await publish(s, 1)
        s.status("mistaken", 0, Status.REMOVED, package_id="another")
        s.status("terse", 0, Status.REMOVED, package_id="")
        for name, offset in (("mistaken", -1), ("terse", 0), ("mistaken", 0)):
            await s.announce(name, offset)
        [event] = await reported(s, 1)
        assert (event["imported"], event["removed"]) == (["mistaken"], ["terse"])

    site.run(scenario)


def test_an_event_that_would_be_too_large_names_no_subscribers(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_publisher, "_LARGEST", 0)

    async def scenario(s: PublisherService) -> None:
        await publish(s, 1)
        await s.announce("sub1", 0)
        [event] = await reported(s, 1)
        assert event["state"] == "DISTRIBUTED"
        assert [event[kind] for kind in KINDS] == [[]] * len(KINDS)

    site.run(scenario)


def test_r30_a_subscriber_that_says_a_lot_costs_a_little(site: Site) -> None:
    async def scenario(s: PublisherService) -> None:
        big = "x" * 300_000
        await s.announce("big", -1, last_error=big, endpoint=big, subscriber_instance=big)
        until_remembered(s, 1)
        [(size,)] = s.author.rows("SELECT length(announcement) FROM bookkeeping.known_subscriber")
        assert size < 4_000
        assert len((await s.client.get("/subscribers")).content) < 4_000

    site.run(scenario)
