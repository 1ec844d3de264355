"""The durable truth about delivery over HTTP: error queues, deliveries, events (R9, R16, R18)."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from packhorse.db.connect import open_pool
from packhorse.messaging.api import Edge, Record
from packhorse.messaging.memory import shared_log
from packhorse.messaging.topics import standard_topics
from packhorse.wire.messages import Status
from packhorse_services.publisher.outcomes.tidying import Tidying
from tests.harness.publisher_service import PublisherService, as_
from tests.harness.publishing import AGENT, TOPICS, page
from tests.harness.waiting import eventually

Scenario = Callable[[PublisherService], Awaitable[None]]


class Site:
    """One author database and journal, and publishers that come and go on it."""

    def __init__(self, database_url: str, folder: Path) -> None:
        self._url, self._folder = database_url, folder
        self.run(self._write)

    async def _write(self, s: PublisherService) -> None:
        s.author.write(*(page(f"/p{number}") for number in range(6)))

    def run(self, scenario: Scenario) -> None:
        """Play a scenario with a publisher that has just started."""
        PublisherService(self._url, self._folder).run(scenario)

    def recreate(self, topic: str) -> None:
        """Remove a topic with all its records, and make it anew."""
        log = shared_log(str(self._folder))
        log.remove_topic(topic)
        service = PublisherService(self._url, self._folder)
        service.journal.create_topics(standard_topics(TOPICS))

    def rows(self, query: str, *parameters: object) -> list[Any]:
        return PublisherService(self._url, self._folder).author.rows(query, *parameters)


@pytest.fixture
def site(database_url: str, tmp_path: Path) -> Site:
    return Site(database_url, tmp_path)


async def publish(s: PublisherService, count: int = 5) -> list[str]:
    return [(await s.accepted(f"/p{number}"))["id"] for number in range(count)]


async def states(s: PublisherService, package_id: str) -> dict[str, str]:
    found = await s.get(f"/distributions/{package_id}")
    return {one["subscriber"]: one["state"] for one in found["subscribers"]}


async def until_failed(s: PublisherService, name: str, length: int) -> dict[str, Any]:
    found: dict[str, Any] = {}

    async def known() -> bool:
        answer = await s.client.get(f"/queues/{name}/errors")
        found.update(answer.json())
        return answer.status_code == 200 and found["length"] == length

    await s.until(known)
    return found


def until_remembered(s: PublisherService, count: int) -> None:
    query = "SELECT FROM bookkeeping.known_subscriber"
    eventually(lambda: len(s.author.rows(query)) == count, what=f"{count} are remembered")


def events(s: PublisherService) -> list[Record]:
    end = sum(s.journal.bounds(TOPICS.event, number).next for number in range(4))
    records: list[Record] = []
    with s.journal.reader(TOPICS.event, Edge.OLDEST) as reader:
        while len(records) < end:
            records += reader.poll(5)
    return records


async def told(s: PublisherService, count: int) -> list[dict[str, Any]]:
    async def enough() -> bool:
        return len(events(s)) >= count

    await s.until(enough)
    return [json.loads(record.value) for record in events(s)]


def test_r18_the_error_queue_outlives_publisher_status_topic_and_log(site: Site) -> None:
    ids: list[str] = []

    async def fail(s: PublisherService) -> None:
        ids.extend(await publish(s))
        failure = {"package_id": ids[1], "attempts": 4, "reason": "no", "decided_ms": 10**12}
        s.status("sub1", 1, Status.REMOVED_FAILED, **failure)
        await s.announce("sub1", 4, max_retries=3)
        await until_failed(s, "sub1", 1)

    async def look(s: PublisherService) -> None:
        [entry] = (await s.get("/queues/sub1/errors"))["entries"]
        assert entry == {
            "package_id": ids[1],
            "offset": 1,
            "action": "ADD",
            "paths": ["/p1"],
            "deep_paths": [],
            "user": "admin",
            "attempts": 4,
            "reason": "no",
            "time": "2001-09-09T01:46:40Z",
            "redistributed_as": None,
        }

    async def look_at_all(s: PublisherService) -> None:
        await look(s)
        [queue] = (await s.get("/queues"))["queues"]
        assert (queue["subscriber"], queue["errors"]) == ("sub1", 1)
        assert await states(s, ids[1]) == {"sub1": "REMOVED_FAILED"}
        assert await states(s, ids[0]) == {"sub1": "IMPORTED"}

    async def cut(s: PublisherService) -> None:
        await look_at_all(s)
        s.journal.truncate(TOPICS.package, 5)

    site.run(fail)
    site.run(look_at_all)
    site.recreate(TOPICS.status)
    site.run(cut)
    site.run(look)


def test_r18_a_failure_of_an_older_log_never_colours_a_new_package(site: Site) -> None:
    old: list[str] = []

    async def fail(s: PublisherService) -> None:
        old.extend(await publish(s, 2))
        journal_id = s.journal.identity(TOPICS.package)
        known = {"package_id": old[1], "reason": "old", "journal_id": journal_id}
        s.status("sub1", 1, Status.REMOVED_FAILED, **known)
        await s.announce("sub1", 1, journal_id=journal_id)
        await until_failed(s, "sub1", 1)

    async def go_on(s: PublisherService) -> None:
        new = await publish(s, 2)
        journal_id = s.journal.identity(TOPICS.package)
        await s.announce("sub1", 1, journal_id=journal_id)
        assert await states(s, new[1]) == {"sub1": "IMPORTED"}
        known = {"package_id": new[1], "reason": "new", "journal_id": journal_id}
        s.status("sub1", 1, Status.REMOVED_FAILED, **known)
        found = await until_failed(s, "sub1", 2)
        assert [one["package_id"] for one in found["entries"]] == [old[1], new[1]]
        first = await s.get("/queues/sub1/errors?limit=1")
        second = await s.get(first["next"])
        shown = first["entries"] + second["entries"]
        assert [one["reason"] for one in shown] == ["old", "new"]
        assert second["next"] is None
        again = await s.client.post("/queues/sub1/errors/1/redistribute")
        assert again.status_code == 202
        entries = (await s.get("/queues/sub1/errors"))["entries"]
        assert [one["redistributed_as"] for one in entries] == [None, again.json()["id"]]

    site.run(fail)
    site.recreate(TOPICS.package)
    site.run(go_on)


def test_r18_redistributing_is_a_new_request_of_the_same_paths_to_all(site: Site) -> None:
    async def scenario(s: PublisherService) -> None:
        ids = await publish(s, 2)
        for offset in (0, 1):
            s.status("sub1", offset, Status.REMOVED_FAILED, package_id=ids[offset])
        s.status("sub1", 7, Status.REMOVED_FAILED, package_id="nobody-knows")
        await s.announce("sub1", 1, max_retries=0)
        await until_failed(s, "sub1", 3)
        path = "/queues/sub1/errors/1/redistribute"
        headers = {"Idempotency-Key": "again"}
        answers = [await s.client.post(path, headers=headers) for _ in range(2)]
        assert [one.status_code for one in answers] == [202, 202]
        assert answers[0].headers["location"] == f"/distributions/{answers[0].json()['id']}"
        assert [one.json()["repeated"] for one in answers] == [False, True]
        assert {one.json()["id"] for one in answers} == {answers[0].json()["id"]}
        placed = s.author.journaled()
        assert [one.message.entry.paths for one in placed] == [("/p0",), ("/p1",), ("/p1",)]
        shown = {one["offset"]: one for one in (await until_failed(s, "sub1", 3))["entries"]}
        assert shown[1]["redistributed_as"] == placed[-1].message.entry.package_id
        assert shown[0]["redistributed_as"] is None

        refused = await s.client.post(path, headers=as_("editor"))
        assert (refused.status_code, refused.json()["type"]) == (403, "/problems/path-refused")
        forbidden = await s.client.post(path, headers=as_("viewer"))
        assert forbidden.status_code == 403
        for wrong in ("/queues/sub1/errors/2", "/queues/nobody/errors/1"):
            missing = await s.client.post(f"{wrong}/redistribute")
            assert (missing.status_code, missing.json()["type"]) == (
                *(404, "/problems/not-in-error-queue"),
            )
        unknown = await s.client.post("/queues/sub1/errors/7/redistribute")
        assert (unknown.status_code, unknown.json()["type"]) == (409, "/problems/paths-unknown")
        assert "POST /distribute" in unknown.json()["detail"]
        s.author.rows("DELETE FROM content.node WHERE path = '/p0' RETURNING path")
        gone = await s.client.post("/queues/sub1/errors/0/redistribute")
        assert (gone.status_code, gone.json()["type"]) == (404, "/problems/path-missing")
        assert len(s.author.journaled()) == 3

    site.run(scenario)


def test_r18_an_import_is_not_shown_before_it_can_no_longer_be_a_failure(site: Site) -> None:
    async def scenario(s: PublisherService) -> None:
        [package_id] = await publish(s, 1)
        await s.announce("sub1", 0, settled_offset=-1)
        found = await s.get(f"/distributions/{package_id}")
        assert (found["state"], found["subscribers"][0]["state"]) == ("QUEUED", "QUEUED")
        s.status("sub1", 0, Status.REMOVED_FAILED, package_id=package_id, reason="late")
        await s.announce("sub1", 0)
        found = await s.get(f"/distributions/{package_id}")
        assert found["state"] == "DISTRIBUTED"
        [part] = found["subscribers"]
        assert (part["state"], part["reason"]) == ("REMOVED_FAILED", "late")

    site.run(scenario)


def test_r9_a_later_decision_takes_the_place_of_an_earlier_one(site: Site) -> None:
    async def scenario(s: PublisherService) -> None:
        ids = await publish(s, 3)
        for offset in range(3):
            known = {"package_id": ids[offset], "reason": "first", "decided_ms": 1_000}
            s.status("sub1", offset, Status.REMOVED_FAILED, **known)
        s.status("sub1", 0, Status.IMPORTED, package_id=ids[0], decided_ms=2_000)
        known = {"package_id": ids[1], "reason": "second", "decided_ms": 2_000}
        s.status("sub1", 1, Status.REMOVED_FAILED, **known)
        s.status("sub1", 2, Status.IMPORTED, package_id=ids[2], decided_ms=500)
        await s.announce("sub1", 2)
        found = await until_failed(s, "sub1", 2)
        assert [one["reason"] for one in found["entries"]] == ["second", "first"]
        assert await states(s, ids[0]) == {"sub1": "IMPORTED"}

    site.run(scenario)


def test_r16_a_subscriber_of_hours_ago_is_shown_after_a_restart(site: Site) -> None:
    ids: list[str] = []

    async def before(s: PublisherService) -> None:
        ids.extend(await publish(s, 2))
        await s.announce("gone", 0)
        await s.announce("late", 1, started_offset=0)
        until_remembered(s, 2)

    def age(hours: int) -> None:
        """Let it be so long ago, and the discovery topic forgotten."""
        site.rows(
            "UPDATE bookkeeping.known_subscriber SET seen_at = now() - make_interval(hours => %s) "
            "RETURNING agent",
            hours,
        )
        site.recreate(TOPICS.discovery)

    async def hours_later(s: PublisherService) -> None:
        shown = {one["subscriber"]: one for one in (await s.get("/queues"))["queues"]}
        assert {name: one["state"] for name, one in shown.items()} == {
            "gone": "STALE",
            "late": "STALE",
        }
        assert await states(s, ids[0]) == {"gone": "IMPORTED", "late": "SKIPPED"}
        found = await s.get(f"/distributions/{ids[1]}")
        assert found["state"] == "QUEUED", "nobody is live"
        assert {one["stale"] for one in found["subscribers"]} == {True}
        assert await states(s, ids[1]) == {"gone": "QUEUED", "late": "IMPORTED"}
        assert (await s.get("/queues/gone"))["length"] == 1

    async def days_later(s: PublisherService) -> None:
        assert (await s.get("/queues"))["queues"] == []
        assert await states(s, ids[1]) == {"gone": "QUEUED", "late": "IMPORTED"}

    async def weeks_later(s: PublisherService) -> None:
        assert await states(s, ids[1]) == {}

    site.run(before)
    for hours, scenario in ((5, hours_later), (60, days_later), (24 * 8, weeks_later)):
        age(hours)
        site.run(scenario)


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
        assert [one["package_id"] for one in await told(s, 2)] == ids[:2]

    async def second(s: PublisherService) -> None:
        assert len(events(s)) == 2
        await s.announce("slow", 3)
        await told(s, 3)
        ids.append((await s.accepted("/p4"))["id"])
        for name in ("fast", "slow", "joined"):
            await s.announce(name, 4)
        found = await told(s, 4)
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


def check_against_document(record: Record) -> None:
    """Hold an event to what `asyncapi/events.yaml` says of it."""
    document = yaml.safe_load((Path(__file__).parents[2] / "asyncapi" / "events.yaml").read_text())
    message = document["components"]["messages"]["PackageDistributed"]
    headers = {name: text.decode() for name, text in record.headers.items()}
    for part, value in (("headers", headers), ("payload", json.loads(record.value))):
        schema = {**message[part], "components": document["components"]}
        Draft202012Validator(schema).validate(value)


KINDS = ("imported", "removed", "failed", "skipped", "away")


def test_another_replica_shows_the_same_and_takes_over(site: Site) -> None:
    ids: list[str] = []

    async def first(s: PublisherService) -> None:
        await asyncio.to_thread(site.run, partial(second, s))

    async def second(leader: PublisherService, s: PublisherService) -> None:
        ids.extend(await publish(s, 2))
        s.status("sub1", 0, Status.REMOVED_FAILED, package_id=ids[0], reason="no")
        await s.announce("sub1", 0)
        assert await states(s, ids[0]) == {"sub1": "REMOVED_FAILED"}
        await told(s, 1)

        async def counted() -> bool:
            return [queue["errors"] for queue in (await s.get("/queues"))["queues"]] == [1]

        await s.until(counted)
        leader.keeper.stop(10)
        s.status("sub1", 1, Status.REMOVED, package_id=ids[1])
        await s.announce("sub1", 1)
        assert await states(s, ids[1]) == {"sub1": "REMOVED"}
        assert [one["package_id"] for one in await told(s, 2)] == ids

    site.run(first)


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
        [event] = await told(s, 1)
        assert (event["imported"], event["away"]) == (["here"], ["away"])

    site.run(before)
    site.rows(
        "UPDATE bookkeeping.known_subscriber SET seen_at = now() - interval '1 minute' "
        "RETURNING agent"
    )
    site.recreate(TOPICS.discovery)
    site.run(after)


def test_r18_housekeeping_keeps_failures_longer_than_the_log(site: Site) -> None:
    async def scenario(s: PublisherService) -> None:
        ids = await publish(s)
        for offset, status in (
            (0, Status.REMOVED),
            (1, Status.REMOVED_FAILED),
            (2, Status.SKIPPED),
        ):
            s.status("sub1", offset, status, package_id=ids[offset])
        s.status("sub1", 4, Status.REMOVED, package_id=ids[4])
        await s.announce("sub1", 4)
        await until_failed(s, "sub1", 1)
        with open_pool(s.author.database_url, "tests") as pool:
            tidying = Tidying(pool, s.journal, TOPICS.package, AGENT, keep_failed_s=3600)
            tidying.tidy()
            query = "SELECT log_offset FROM bookkeeping.outcome ORDER BY 1"
            assert s.author.rows(query) == [(0,), (1,), (2,), (4,)]
            s.journal.truncate(TOPICS.package, 4)
            tidying.tidy()
            assert s.author.rows(query) == [(1,), (4,)]
            s.author.rows(
                "UPDATE bookkeeping.outcome SET recorded_at = now() - interval '2 h' RETURNING 1"
            )
            tidying.tidy()
            assert s.author.rows(query) == [(4,)]

    site.run(scenario)
