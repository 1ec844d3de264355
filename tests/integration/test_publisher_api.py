"""The publisher over HTTP, in process, on a real Postgres and the journal in memory."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from packhorse.wire.messages import AWAITED
from tests.harness.publisher_service import PublisherService, as_
from tests.harness.publishing import TOPICS, page


@pytest.fixture
def service(database_url: str, tmp_path: Path) -> PublisherService:
    service = PublisherService(database_url, tmp_path)
    service.author.write(*(page(f"/content/site/p{number}") for number in range(5)))
    service.author.write(page("/private/page"))
    return service


def test_a_request_is_accepted_and_followed_to_its_end(service: PublisherService) -> None:
    async def scenario(s: PublisherService) -> None:
        await s.announce("sub1", -1)
        answer = await s.distribute("/content/site/p0", headers={"traceparent": TRACE})
        accepted = answer.json()
        assert answer.status_code == 202
        assert re.fullmatch(r"dstrpck-[0-9]{13}-[0-9a-f]{16}", accepted["id"])
        assert (accepted["state"], accepted["offset"]) == ("QUEUED", 0)
        assert answer.headers["location"] == f"/distributions/{accepted['id']}"
        [placed] = s.author.journaled()
        assert placed.message.entry.package_id == accepted["package_id"]
        record = s.author.journal.read_at(TOPICS.package, 0)
        assert record is not None
        assert record.headers["traceparent"].split(b"-")[1] == TRACE.split("-")[1].encode()

        async def delivery() -> tuple[str, dict[str, Any]]:
            document = await s.get(answer.headers["location"])
            return document["state"], document["subscribers"][0]

        assert (await delivery())[1]["state"] == "QUEUED"
        await s.announce("sub1", -1, retries=2, last_error="disk full")

        async def retried() -> bool:
            return bool((await delivery())[1]["state"] == "RETRYING")

        await s.until(retried)
        state, sub1 = await delivery()
        assert (state, sub1["state"], sub1["attempts"], sub1["reason"]) == (
            *("QUEUED", "RETRYING"),
            *(2, "disk full"),
        )
        await s.announce("sub1", 0)
        state, sub1 = await delivery()
        assert (state, sub1["state"]) == ("DISTRIBUTED", "IMPORTED")

    service.run(scenario)


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_prefer_wait_answers_when_every_live_subscriber_has_it(service: PublisherService) -> None:
    async def scenario(s: PublisherService) -> None:
        await s.announce("sub1", -1)
        await s.announce("sub2", -1)
        waiting = asyncio.create_task(
            s.distribute("/content/site/p0", headers={"Prefer": "respond-async, wait=30"})
        )
        await s.announce("sub1", 0)
        await s.announce("sub2", 0)
        answer = await waiting
        assert answer.headers["preference-applied"] == "wait=30"
        assert answer.json()["state"] == "DISTRIBUTED"
        answer = await s.distribute("/content/site/p0", headers={"Prefer": "wait=0"})
        assert answer.json()["state"] == "QUEUED"
        await s.distribute("/content/site/p0")
        awaited = [AWAITED in placed.message.metadata for placed in s.author.journaled()]
        assert awaited == [True, True, False], "subscribers know what somebody waits for"

    service.run(scenario)


def test_a_dry_run_publishes_nothing(service: PublisherService) -> None:
    async def scenario(s: PublisherService) -> None:
        await s.announce("sub1", -1)
        answer = await s.dry_run(action="ADD", deep_paths=["/content"])
        report = answer.json()
        assert answer.status_code == 200
        assert (report["nodes"], report["body"]) == (7, "inline")
        assert report["body_bytes"] > 0
        assert report["subscribers"] == [{"subscriber": "sub1", "state": "IDLE", "length": 0}]
        assert (await s.dry_run("/gone")).status_code == 404
        # It was a member of the body; whoever still sends it must not publish.
        assert (await s.distribute("/content/site/p0", dry_run=True)).status_code == 422
        assert s.author.journaled() == []
        assert s.author.rows("SELECT FROM bookkeeping.outbox") == []

    service.run(scenario)


WRONG: list[tuple[dict[str, Any], int, str]] = [
    ({"action": "ADD", "paths": ["/content/site/p0", "/gone"]}, 404, "#/paths/1"),
    ({"action": "ADD", "deep_paths": ["/gone"]}, 404, "#/deep_paths/0"),
    ({"action": "ADD", "paths": ["/a", "/a//b"]}, 422, "#/paths/1"),
    ({"action": "ADD", "paths": ["/a/../b"]}, 422, "#/paths/0"),
    ({"action": "ADD", "paths": ["relative"]}, 422, "#/paths/0"),
    ({"action": "ADD", "paths": ["/" + "x" * 2048]}, 422, "#/paths/0"),
    ({"action": "ADD", "paths": ["/a\u0007"]}, 422, "#/paths/0"),
    ({"action": "ADD", "paths": []}, 422, "#"),
    ({"action": "ADD", "paths": ["/a"] * 600, "deep_paths": ["/a"] * 600}, 422, "#"),
    ({"action": "ADD", "paths": ["/" + "x" * 1000] * 100}, 422, "#"),
    ({"action": "DELETE", "deep_paths": ["/"]}, 422, "#"),
    ({"action": "PULL", "paths": ["/a"]}, 422, "#/action"),
    ({"action": "ADD", "paths": ["/a"], "more": 1}, 422, "#/more"),
]


def test_a_wrong_request_is_refused_with_the_reason(service: PublisherService) -> None:
    async def scenario(s: PublisherService) -> None:
        for body, status, pointer in WRONG:
            answer = await s.client.post("/distribute", json=body)
            assert answer.status_code == status, answer.text
            assert answer.headers["content-type"] == "application/problem+json"
            problem = answer.json()
            assert [wrong["pointer"] for wrong in problem["errors"]] == [pointer]
            assert problem["detail"] not in [wrong["detail"] for wrong in problem["errors"]]
        assert s.author.rows("SELECT FROM bookkeeping.outbox") == []

    service.run(scenario)


def test_deletions_and_tests_need_nothing_to_be_there(service: PublisherService) -> None:
    async def scenario(s: PublisherService) -> None:
        await s.announce("sub1", -1)
        await s.accepted("/gone", action="DELETE")
        await s.accepted("/gone", action="INVALIDATE")
        await s.accepted(action="TEST")

        async def queued() -> bool:
            return bool((await s.get("/queues/sub1"))["length"] == 2)

        await s.until(queued)
        queue = await s.get("/queues/sub1")
        assert [entry["action"] for entry in queue["entries"]] == ["DELETE", "INVALIDATE"]

    service.run(scenario)


def test_what_a_caller_may_do(service: PublisherService) -> None:
    async def scenario(s: PublisherService) -> None:
        await s.announce("sub1", -1, editable=True)
        body: dict[str, Any] = {"action": "ADD", "paths": ["/content/site/p0", "/private/page"]}
        refused = await s.client.post("/distribute", json=body, headers=as_("editor"))
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (403, "#/paths/1")
        body["paths"].pop()
        assert (
            await s.client.post("/distribute", json=body, headers=as_("editor"))
        ).status_code == 202
        for token in ("viewer", "nobody"):
            answer = await s.client.post("/distribute", json=body, headers=as_(token))
            assert answer.status_code == 403
        answer = await s.client.post("/queues/sub1/clear", headers=as_("viewer"))
        assert answer.status_code == 403
        for path in ("/queues", "/queues/sub1", "/subscribers", "/queues/sub1/errors"):
            assert (await s.client.get(path, headers=as_("viewer"))).status_code == 200
            assert (await s.client.get(path, headers=as_("editor"))).status_code == 403
            assert (await s.client.get(path, headers=as_("unknown"))).status_code == 401

    service.run(scenario)


def test_r5_one_key_gives_one_package(service: PublisherService) -> None:
    async def scenario(s: PublisherService) -> None:
        key = {"Idempotency-Key": "k-1"}
        first = await s.accepted("/content/site/p0", headers=key)
        second = await s.accepted("/content/site/p0", headers=key)
        assert (first["repeated"], second["repeated"]) == (False, True)
        assert {**first, "repeated": True} == second
        other = await s.distribute("/content/site/p1", headers=key)
        assert (other.status_code, other.json()["type"]) == (422, "/problems/key-reused")
        editor = {**key, **as_("editor")}
        assert (await s.accepted("/content/site/p0", headers=editor))["id"] != first["id"]
        assert len(s.author.journaled()) == 2
        bad = await s.distribute("/content/site/p0", headers={"Idempotency-Key": "a b"})
        assert bad.status_code == 422

    service.run(scenario)


def test_r5_a_key_in_progress_is_refused(service: PublisherService) -> None:
    async def scenario(s: PublisherService) -> None:
        key = {"Idempotency-Key": "k-1"}
        s.journal.may_append.clear()
        first = asyncio.create_task(s.accepted("/content/site/p0", headers=key))
        await asyncio.to_thread(s.journal.requested.wait, 20)
        second = await s.distribute("/content/site/p0", headers=key)
        assert (second.status_code, second.headers["retry-after"]) == (409, "1")
        s.journal.may_append.set()
        assert (await first)["offset"] == 0
        assert (await s.accepted("/content/site/p0", headers=key))["repeated"]

    service.run(scenario)


def test_a_journal_that_is_away_fills_the_outbox_then_refuses(
    database_url: str, tmp_path: Path
) -> None:
    service = PublisherService(database_url, tmp_path, outbox_packages=2)
    service.author.write(page("/a"))

    async def scenario(s: PublisherService) -> None:
        s.journal.away = True
        accepted = [await s.accepted("/a"), await s.accepted("/a")]
        assert [one["state"] for one in accepted] == ["ACCEPTED", "ACCEPTED"]
        refused = await s.distribute("/a")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        document = await s.get(f"/distributions/{accepted[0]['id']}")
        assert (document["state"], document["offset"]) == ("ACCEPTED", None)
        s.journal.away = False

        async def settled() -> bool:
            found = await s.get(f"/distributions/{accepted[1]['id']}")
            return bool(found["offset"] == 1)

        await s.until(settled)
        assert (await s.accepted("/a"))["offset"] == 2

    service.run(scenario)
