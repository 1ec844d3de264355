"""What became of a package at each subscriber over HTTP, also with late reports (R9, R16, R18)."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from packhorse.db.connect import connect
from packhorse.messaging.api import Outgoing
from packhorse.wire.command_codec import encode_command_status
from packhorse.wire.messages import (
    CommandState,
    CommandStatusMessage,
    ResetCommand,
    Status,
    SubscriptionState,
)
from packhorse_services.publisher.commands import command_rows
from tests.harness.publisher_service import PublisherService
from tests.harness.publisher_site import (
    Site,
    publish,
    reported,
    states,
    until_failed,
    until_remembered,
)
from tests.harness.publishing import AGENT, TOPICS
from tests.harness.tidying import tidy


@pytest.fixture
def site(database_url: str, tmp_path: Path) -> Site:
    return Site(database_url, tmp_path)


def test_r18_an_import_is_not_shown_before_it_can_no_longer_be_a_failure(site: Site) -> None:
    async def scenario(s: PublisherService) -> None:
        [package_id] = await publish(s, 1)
        await s.announce("sub1", 0, settled_offset=-1)
        found = await s.get(f"/distributions/{package_id}")
        assert (found["state"], found["subscribers"][0]["state"]) == ("QUEUED", "QUEUED")
        late = {"reason": "late", "decided_ms": 1_767_268_800_000}
        s.status("sub1", 0, Status.REMOVED_FAILED, package_id=package_id, **late)
        await s.announce("sub1", 0)
        found = await s.get(f"/distributions/{package_id}")
        assert found["state"] == "PARTLY_DISTRIBUTED"
        [part] = found["subscribers"]
        assert (part["state"], part["reason"]) == ("REMOVED_FAILED", "late")
        assert part["since"] == "2026-01-01T12:00:00Z"

    site.run(scenario)


def test_r31_done_and_imported_everywhere_are_two_states(site: Site) -> None:
    outcomes = (None, Status.REMOVED_FAILED, Status.REMOVED, Status.SKIPPED)

    async def scenario(s: PublisherService) -> None:
        ids = await publish(s, 4)
        for name in ("sub1", "sub2"):
            await s.announce(name, -1)
        wait = {"Prefer": "wait=30", "Idempotency-Key": "last"}
        waiting = asyncio.create_task(s.distribute("/p4", headers=wait))
        await s.until(lambda: known(s, 5))
        for offset, status in enumerate((*outcomes, Status.REMOVED_FAILED)):
            if status is not None:
                s.status("sub2", offset, status)
        await s.announce("sub1", 4)
        await s.announce("sub2", 4)
        answer = (await waiting).json()
        assert answer["state"] == "PARTLY_DISTRIBUTED"
        everywhere = {ids[0]: "DISTRIBUTED"}
        expected = everywhere | dict.fromkeys([*ids[1:], answer["id"]], "PARTLY_DISTRIBUTED")
        found = {one: (await s.get(f"/distributions/{one}"))["state"] for one in expected}
        assert found == expected
        listed = {
            one["id"]: one["state"] for one in (await s.get("/distributions"))["distributions"]
        }
        assert listed == expected
        for state in set(expected.values()):
            some = (await s.get(f"/distributions?state={state}"))["distributions"]
            assert {one["id"] for one in some} == {
                one for one in expected if expected[one] == state
            }
        assert {one["package_id"]: one["state"] for one in await reported(s, 5)} == expected

    site.run(scenario)


async def known(s: PublisherService, count: int) -> bool:
    return len((await s.get("/distributions"))["distributions"]) == count


def test_a_part_that_waits_says_why_its_subscription_stands_still(site: Site) -> None:
    async def scenario(s: PublisherService) -> None:
        [package_id] = await publish(s, 1)
        reported = {
            (SubscriptionState.PAUSED, ""): "PAUSED",
            (SubscriptionState.STOPPED, ""): "STOPPED",
            (SubscriptionState.WAITING_FOR_SUBSCRIBER, "golden is behind"): (
                "WAITING_FOR_SUBSCRIBER: golden is behind"
            ),
            (SubscriptionState.GAP, "offset 3 is gone"): "GAP: offset 3 is gone",
            (SubscriptionState.RUNNING, ""): "",
        }
        for number, ((state, error), reason) in enumerate(reported.items()):
            name = f"sub{number}"
            await s.announce(name, -1, state=state, last_error=error)
            parts = (await s.get(f"/distributions/{package_id}"))["subscribers"]
            [part] = [one for one in parts if one["subscriber"] == name]
            assert (part["state"], part["reason"]) == ("QUEUED", reason)

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


def test_an_offset_reset_takes_back_what_will_be_decided_anew(site: Site) -> None:
    async def scenario(s: PublisherService) -> None:
        ids = await publish(s, 3)
        for offset in range(3):
            s.status("sub1", offset, Status.REMOVED_FAILED, package_id=ids[offset], reason="no")
        await s.announce("sub1", 2)
        await until_failed(s, "sub1", 3)
        journal_id = s.journal.identity(TOPICS.package)
        reset = ResetCommand("c" * 32, "sub1", AGENT, 0, journal_id=journal_id)
        with connect(s.author.database_url, "tests") as connection:
            command_rows.write(connection, reset)
        status = CommandStatusMessage("c" * 32, "sub1", AGENT, CommandState.APPLIED)
        encoded = encode_command_status(status)
        for _ in range(2):  # it may come twice, the second time after a package was decided anew
            record = Outgoing(encoded.value, encoded.headers)
            s.journal.append(TOPICS.status, record).result()
            again = {"package_id": ids[1], "reason": "again"}
            s.status("sub1", 1, Status.REMOVED_FAILED, **again)
        await s.announce("sub1", 1)
        found = await until_failed(s, "sub1", 2)
        assert [(one["offset"], one["reason"]) for one in found["entries"]] == [
            (0, "no"),
            (1, "again"),
        ]
        assert await states(s, ids[2]) == {"sub1": "QUEUED"}

    site.run(scenario)


async def one_waits(s: PublisherService, name: str) -> bool:
    return bool((await s.get(f"/queues/{name}"))["length"] == 1)


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
        site.rows(
            "UPDATE bookkeeping.outbox SET accepted_at = now() - make_interval(hours => %s, "
            "mins => 1) RETURNING package_id",
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
        await s.until(lambda: one_waits(s, "gone"))

    async def days_later(s: PublisherService) -> None:
        assert (await s.get("/queues"))["queues"] == []
        assert await states(s, ids[1]) == {"gone": "QUEUED", "late": "IMPORTED"}

    async def weeks_later(s: PublisherService) -> None:
        """It is known for as long as the packages are that it may still import."""
        week_ms = 7 * 86_400_000
        for retention_ms, known in ((2 * week_ms, 2), (-1, 2), (2**63 - 1, 2), (week_ms, 0)):
            s.journal.retain(TOPICS.package, retention_ms)
            tidy(s.author)
            assert len(await states(s, ids[1])) == known

    site.run(before)
    for hours, scenario in ((5, hours_later), (60, days_later), (24 * 8, weeks_later)):
        age(hours)
        site.run(scenario)


def test_another_replica_shows_the_same_and_takes_over(site: Site) -> None:
    ids: list[str] = []

    async def first(s: PublisherService) -> None:
        await asyncio.to_thread(site.run, partial(second, s))

    async def second(leader: PublisherService, s: PublisherService) -> None:
        ids.extend(await publish(s, 2))
        s.status("sub1", 0, Status.REMOVED_FAILED, package_id=ids[0], reason="no")
        await s.announce("sub1", 0)
        assert await states(s, ids[0]) == {"sub1": "REMOVED_FAILED"}
        await reported(s, 1)

        async def counted() -> bool:
            return [queue["errors"] for queue in (await s.get("/queues"))["queues"]] == [1]

        await s.until(counted)
        leader.outcome_loop.stop(60)
        s.status("sub1", 1, Status.REMOVED, package_id=ids[1])
        await s.announce("sub1", 1)
        assert await states(s, ids[1]) == {"sub1": "REMOVED"}
        assert [one["package_id"] for one in await reported(s, 2)] == ids

    site.run(first)
