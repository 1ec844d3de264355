"""Queues over HTTP: what subscribers have still to import, and clearing it (R15-R19)."""

from functools import partial
from pathlib import Path
from typing import Any

from packhorse.messaging.api import Outgoing
from packhorse.wire.messages import (
    Action,
    PackageEntry,
    PackageMessage,
    Status,
    SubscriptionState,
)
from packhorse.wire.package_codec import encode_package
from tests.harness.publisher_commands import commands
from tests.harness.publisher_service import PublisherService
from tests.harness.publishing import AGENT, TOPICS, page


async def queue_of_five(s: PublisherService, **known: object) -> list[str]:
    await s.announce("sub1", -1, **known)
    return [(await s.accepted(f"/p{number}"))["id"] for number in range(5)]


async def see(s: PublisherService, length: int, name: str = "sub1") -> None:
    async def seen() -> bool:
        return bool((await s.get(f"/queues/{name}"))["length"] == length)

    await s.until(seen)


def test_r15_a_queue_shows_what_is_above_the_offset_page_by_page(service: PublisherService) -> None:
    async def scenario(s: PublisherService) -> None:
        ids = await queue_of_five(s)
        await see(s, 5)
        first = await s.client.get("/queues/sub1?limit=2")
        following = first.json()["next"]
        assert first.headers["link"] == f'<{following}>; rel="next"'
        shown = first.json()["entries"]
        while following:
            document = await s.get(following)
            shown += document["entries"]
            following = document["next"]
        assert [entry["package_id"] for entry in shown] == ids
        assert [entry["offset"] for entry in shown] == [0, 1, 2, 3, 4]
        assert [entry["paths"] for entry in shown] == [[f"/p{number}"] for number in range(5)]
        await s.announce("sub1", 2)
        assert [entry["offset"] for entry in (await s.get("/queues/sub1"))["entries"]] == [3, 4]
        await s.announce("sub1", 4)
        assert (await s.get("/queues/sub1"))["state"] == "IDLE"
        for wrong in ("?cursor=!!!", "?cursor=eA", "?limit=0", "?limit=1001"):
            assert (await s.client.get(f"/queues/sub1{wrong}")).status_code == 422
        for path in ("/queues/x", "/queues/x/errors", "/subscribers/x"):
            assert (await s.client.get(path)).status_code == 404
        assert (await s.client.post("/queues/x/clear")).status_code == 404

    service.run(scenario)


def test_r16_states(service: PublisherService) -> None:
    async def scenario(s: PublisherService) -> None:
        ids = await queue_of_five(s)
        await see(s, 5)
        await s.announce("sub1", -1)
        assert (await s.get("/queues/sub1"))["state"] == "RUNNING"
        # The first failures for a missing blob are no attempts (ADR 5), but are reported.
        for retries, state in ((0, "RETRYING"), (2, "RETRYING"), (3, "BLOCKED")):
            await s.announce(
                "sub1", -1, retries=retries, last_error="boom", blocked_since_ms=10**12
            )
            await s.until(partial(_says, s, "boom"))
            queue = await s.get("/queues/sub1")
            assert (queue["state"], queue["reason"]) == (state, "boom")
            assert queue["head"]["attempts"] == retries
            [part] = (await s.get(f"/distributions/{ids[0]}"))["subscribers"]
            assert (part["state"], part["attempts"]) == ("RETRYING", retries)
            assert part["reason"] == "boom"
        assert queue["head"]["last_error"] == "boom"
        assert queue["head"]["blocked_since"] == "2001-09-09T01:46:40Z"
        await s.announce("sub1", -1, state=SubscriptionState.GAP)
        [summary] = (await s.get("/queues"))["queues"]
        assert (summary["state"], summary["length"]) == ("GAP", 5)
        [subscriber] = (await s.get("/subscribers"))["subscribers"]
        assert (subscriber["behind"], subscriber["max_retries"]) == (5, -1)

    service.run(scenario)


async def _says(s: PublisherService, reason: str) -> bool:
    return bool((await s.get("/queues/sub1"))["reason"] == reason)


def test_an_unchanged_queue_is_not_sent_again(service: PublisherService) -> None:
    async def scenario(s: PublisherService) -> None:
        await queue_of_five(s)
        await see(s, 5)
        tag = (await s.client.get("/queues/sub1")).headers["etag"]
        same = await s.client.get("/queues/sub1", headers={"If-None-Match": f'"x", {tag}'})
        assert (same.status_code, same.content) == (304, b"")
        await s.announce("sub1", -1, retries=1)
        changed = await s.client.get("/queues/sub1", headers={"If-None-Match": tag})
        assert changed.status_code == 200

    service.run(scenario)


def test_r18_the_error_queue_has_reason_and_attempts(service: PublisherService) -> None:
    async def scenario(s: PublisherService) -> None:
        ids = await queue_of_five(s)
        for _ in range(2):  # a status that comes again is nothing new
            for offset in (1, 3):
                s.status(
                    *("sub1", offset, Status.REMOVED_FAILED),
                    package_id=ids[offset],
                    attempts=4,
                    reason=f"no {offset}",
                )
        s.status("sub1", 2, Status.REMOVED)
        await s.announce("sub1", 4)

        async def known() -> bool:
            return bool((await s.get("/queues/sub1/errors"))["length"] == 2)

        await s.until(known)
        first = await s.get("/queues/sub1/errors?limit=1")
        second = await s.get(first["next"])
        entries = first["entries"] + second["entries"]
        assert [(e["offset"], e["package_id"], e["attempts"], e["reason"]) for e in entries] == [
            (1, ids[1], 4, "no 1"),
            (3, ids[3], 4, "no 3"),
        ]
        states = [(await s.get(f"/distributions/{one}"))["subscribers"][0]["state"] for one in ids]
        assert states == ["IMPORTED", "REMOVED_FAILED", "REMOVED", "REMOVED_FAILED", "IMPORTED"]

    service.run(scenario)


def test_r24_offsets_of_another_log_count_for_nothing(service: PublisherService) -> None:
    async def scenario(s: PublisherService) -> None:
        ids = await queue_of_five(s, editable=True)
        await s.announce("sub1", 1_000, shown=-1, retries=1, editable=True, journal_id="another")
        await see(s, 5)
        judged = await s.get("/queues/sub1")
        assert judged["state"] == "JOURNAL_MISMATCH"
        assert judged["reason"] == "its database was filled from another journal"
        found = await s.get(f"/distributions/{ids[0]}")
        assert (found["state"], found["subscribers"][0]["state"]) == ("QUEUED", "RETRYING")
        assert (await s.client.post("/queues/sub1/clear")).json()["up_to_offset"] == 4
        stopped: dict[str, Any] = {"state": SubscriptionState.STOPPED, "journal_id": "another"}
        await s.announce("sub1", 999, shown=-1, editable=True, last_error="no disk", **stopped)
        assert (await s.get("/queues/sub1"))["reason"] == "no disk"
        assert (await s.get("/subscribers/sub1"))["state"] == "STOPPED", "a reset waits for that"
        here = s.author.journal.identity(TOPICS.package)
        await s.announce("sub1", 4, editable=True, journal_id=here)
        assert (await s.get(f"/distributions/{ids[0]}"))["state"] == "DISTRIBUTED"

    service.run(scenario)


def test_r19_clear_sends_one_command_for_what_was_seen(service: PublisherService) -> None:
    async def scenario(s: PublisherService) -> None:
        await queue_of_five(s, editable=True)
        await see(s, 5)
        tag = (await s.client.get("/queues/sub1")).headers["etag"]
        await s.accepted("/p0")
        await see(s, 6)
        seen = await s.client.post("/queues/sub1/clear", headers={"If-Match": tag})
        assert seen.status_code == 202, seen.text
        assert (seen.json()["up_to_offset"], seen.json()["packages"]) == (4, 5)
        counted = await s.get("/queues/sub1/clear?up_to_offset=1")
        assert counted == {
            "agent": "main",
            "subscriber": "sub1",
            "up_to_offset": 1,
            "packages": 2,
            "packages_at_most": 2,
        }
        assert (await s.get("/queues/sub1/clear"))["packages"] == 6
        some = await s.client.post("/queues/sub1/clear", json={"up_to_offset": 1})
        assert (some.json()["up_to_offset"], some.json()["packages"]) == (1, 2)
        everything = await s.client.post("/queues/sub1/clear")
        assert everything.json()["up_to_offset"] == 5
        sent = commands(s)
        assert [(one.subscriber, one.publisher_agent, one.offset) for one in sent] == [
            ("sub1", "main", 4),
            ("sub1", "main", 1),
            ("sub1", "main", 5),
        ]
        assert sent[0].command_id == seen.json()["command_id"]
        assert sent[0].user == "admin"

    service.run(scenario)


def test_r19_clear_refuses_what_would_remove_too_much(service: PublisherService) -> None:
    async def scenario(s: PublisherService) -> None:
        await queue_of_five(s, editable=True)
        await see(s, 5)
        tag = (await s.client.get("/queues/sub1")).headers["etag"]
        beyond = await s.client.post("/queues/sub1/clear", json={"up_to_offset": 5})
        assert (beyond.status_code, beyond.json()["type"]) == (422, "/problems/beyond-newest")
        elsewhere = await s.client.post("/queues/sub1/clear?up_to_offset=1")
        assert (elsewhere.status_code, commands(s)) == (422, [])
        await s.announce("sub1", 0, editable=True)
        for stale in (tag, '"nonsense"'):
            moved = await s.client.post("/queues/sub1/clear", headers={"If-Match": stale})
            assert moved.status_code == 412
        await s.announce("sub1", 1, editable=False)
        refused = await s.client.post("/queues/sub1/clear")
        assert refused.status_code == 409
        assert "not editable" in refused.json()["detail"]
        for way in ("PACKHORSE_EDITABLE=true", "PATCH /subscribers/sub1/offset"):
            assert way in refused.json()["detail"]
        assert commands(s) == []

    service.run(scenario)


def test_r17_a_late_subscriber_sees_what_is_older_than_the_publisher(
    database_url: str, tmp_path: Path
) -> None:
    async def before(s: PublisherService) -> None:
        await queue_of_five(s)

    async def after(s: PublisherService) -> None:
        await s.announce("late", -1)
        await see(s, 5, "late")

    service = PublisherService(database_url, tmp_path)
    service.author.write(*(page(f"/p{number}") for number in range(5)))
    service.run(before)
    PublisherService(database_url, tmp_path).run(after)


def test_r14_a_record_that_no_queue_shows_is_shown_as_failing_and_can_be_cleared(
    service: PublisherService,
) -> None:
    """Its header says TEST, and its value is garbage."""

    async def scenario(s: PublisherService) -> None:
        await s.announce("sub1", -1, editable=True)
        await s.accepted("/p0")
        await see(s, 1)
        await s.announce("sub1", 0, editable=True)
        assert (await s.get("/queues/sub1"))["state"] == "IDLE"
        entry = PackageEntry("forged", AGENT, Action.TEST, ("/p0",))
        headers = encode_package(PackageMessage(entry)).headers
        poison = s.author.journal.append(TOPICS.package, Outgoing(b"\xff" * 40, headers))
        offset = poison.result(120).offset
        reported: dict[str, Any] = {
            "retries": 3,
            "last_error": "no PackageMessage",
            "editable": True,
        }
        await s.announce("sub1", 0, state=SubscriptionState.BLOCKED, **reported)
        queue = await s.client.get("/queues/sub1")
        shown = queue.json()
        assert (shown["state"], shown["length"], shown["entries"]) == ("BLOCKED", 0, [])
        assert (shown["head"]["attempts"], shown["head"]["last_error"]) == (3, "no PackageMessage")
        assert (await s.get("/subscribers/sub1"))["state"] == "BLOCKED"
        await s.announce("sub1", 0, **{**reported, "retries": 1})
        assert (await s.get("/queues/sub1"))["state"] == "RETRYING"
        beyond = await s.client.post("/queues/sub1/clear", json={"up_to_offset": offset + 1})
        assert (beyond.status_code, beyond.json()["type"]) == (422, "/problems/beyond-newest")
        bodies: list[tuple[Any, dict[str, str]]] = [
            ({"up_to_offset": offset}, {}),
            ({}, {}),
            ({}, {"If-Match": (await s.client.get("/queues/sub1")).headers["etag"]}),
        ]
        for body, more in bodies:
            cleared = await s.client.post("/queues/sub1/clear", json=body, headers=more)
            assert (cleared.status_code, cleared.json()["up_to_offset"]) == (202, offset)

    service.run(scenario)
