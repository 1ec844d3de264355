"""Packages for named subscribers: asked for, refused, and told truly (R35)."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from packhorse.runtime import audit
from packhorse.wire.messages import Status
from packhorse.wire.package_codec import decode_package
from tests.harness.publisher_service import PublisherService
from tests.harness.publisher_site import (
    Site,
    publish,
    reported,
    states,
    until_remembered,
)
from tests.harness.publishing import TOPICS


@pytest.fixture
def site(database_url: str, tmp_path: Path) -> Site:
    return Site(database_url, tmp_path)


def test_r35_a_package_for_one_is_distributed_once_that_one_has_it(site: Site) -> None:
    async def scenario(s: PublisherService) -> None:
        await publish(s, 1)
        for name in ("mended", "other"):
            await s.announce(name, 0)
        key = {"Idempotency-Key": "mend"}
        accepted = await s.accepted("/p0", targets=["mended"], headers=key)
        again = await s.accepted("/p0", targets=["mended"], headers=key)
        assert (again["id"], again["repeated"]) == (accepted["id"], True)
        reused = await s.distribute("/p0", headers=key)
        assert (reused.status_code, reused.json()["type"]) == (422, "/problems/key-reused")
        record = s.author.journal.read_at(TOPICS.package, accepted["offset"])
        assert record is not None
        for name in ("mended", "other"):
            await s.until(lambda name=name: _queued(s, name))
            [*_, queued] = (await s.get(f"/queues/{name}"))["entries"]
            assert (queued["package_id"], queued["targets"]) == (accepted["id"], ["mended"])
        package = decode_package(record.headers, record.value)
        assert (package.entry.targets, package.package_type) == (("mended",), "packhorse/3")

        s.status("other", 1, Status.SKIPPED, reason="it is for mended alone", left_out=True)
        await s.announce("other", 1)
        assert (await s.get(f"/distributions/{accepted['id']}"))["state"] == "QUEUED"
        await s.announce("mended", 1)
        found = await s.get(f"/distributions/{accepted['id']}")
        assert (found["state"], found["targets"]) == ("DISTRIBUTED", ["mended"])
        assert await states(s, accepted["id"]) == {"mended": "IMPORTED", "other": "SKIPPED"}
        assert found["subscribers"][1]["reason"] == "it is for mended alone"
        [listed, _] = (await s.get("/distributions"))["distributions"]
        assert (listed["state"], listed["targets"]) == ("DISTRIBUTED", ["mended"])
        [_, event] = await reported(s, 2)
        assert (event["state"], event["imported"], event["skipped"]) == (
            *("DISTRIBUTED", ["mended"]),
            ["other"],
        )

    site.run(scenario)


def test_r35_who_it_is_not_for_is_not_waited_for(site: Site) -> None:
    async def before(s: PublisherService) -> None:
        await s.announce("silent", -1)
        until_remembered(s, 1)

    async def after(s: PublisherService) -> None:
        for name in ("mended", "blocked"):
            await s.announce(name, -1)
        key = {"Idempotency-Key": "mend", "Prefer": "wait=60"}
        asked = asyncio.create_task(s.accepted("/p0", targets=["mended"], headers=key))
        await s.until(lambda: _queued(s, "mended"))
        await s.announce("mended", 0)
        accepted = await asked
        assert accepted["state"] == "DISTRIBUTED"
        url = f"/distributions/{accepted['id']}"
        assert (await s.get(f"{url}?wait=60"))["state"] == "DISTRIBUTED"
        s.status("blocked", 0, Status.REMOVED, package_id=accepted["id"])
        await s.announce("blocked", 0)
        assert (await s.get(url))["state"] == "DISTRIBUTED"
        assert await states(s, accepted["id"]) == {
            "mended": "IMPORTED",
            "blocked": "REMOVED",
            "silent": "QUEUED",
        }
        [listed] = (await s.get("/distributions"))["distributions"]
        assert listed["state"] == "DISTRIBUTED"
        [event] = await reported(s, 1)
        assert (event["state"], event["imported"], event["away"]) == (
            *("DISTRIBUTED", ["mended"]),
            [],
        )

    site.run(before)
    site.rows(
        "UPDATE bookkeeping.known_subscriber SET seen_at = now() - interval '1 minute' "
        "RETURNING agent"
    )
    site.recreate(TOPICS.discovery)
    site.run(after)


async def _queued(s: PublisherService, name: str) -> bool:
    return bool((await s.get(f"/queues/{name}"))["length"])


def test_r35_what_is_for_nobody_that_is_known_is_refused(site: Site) -> None:
    async def scenario(s: PublisherService) -> None:
        await publish(s, 1)
        refused = await s.distribute("/p0", targets=["nobody"])
        assert (refused.status_code, refused.json()["type"]) == (
            404,
            "/problems/unknown-subscriber",
        )
        later = await s.distribute("/p0", targets=["x"], at="2999-01-01T00:00:00Z")
        assert (later.status_code, later.json()["type"]) == (404, "/problems/unknown-subscriber")
        for name in ("mended", "other"):
            await s.announce(name, 0)
        measured = (await s.dry_run("/p0", targets=["mended"])).json()
        assert [one["subscriber"] for one in measured["subscribers"]] == ["mended"]

    site.run(scenario)


def test_r35_a_delete_of_what_is_to_be_absent_is_refused_by_the_path_that_is_there(
    site: Site,
) -> None:
    async def scenario(s: PublisherService) -> None:
        absent: dict[str, Any] = {"action": "DELETE", "only_if_absent": True}
        refused = await s.distribute("/gone", "/p1", **absent)
        assert (refused.status_code, refused.json()["type"]) == (409, "/problems/path-present")
        assert [one["pointer"] for one in refused.json()["errors"]] == ["#/paths/1"]
        batch = {"requests": [{"paths": ["/gone", "/p1"], **absent}]}
        [alone] = (await s.client.post("/distribute/batch", json=batch)).json()["outcomes"]
        assert (alone["status"], alone["problem"]["errors"]) == (409, refused.json()["errors"])

        key = {"Idempotency-Key": "absent"}
        accepted = await s.accepted("/gone", headers=key, **absent)
        assert (await s.accepted("/gone", headers=key, **absent))["id"] == accepted["id"]
        reused = await s.distribute("/gone", headers=key, action="DELETE")
        assert reused.json()["type"] == "/problems/key-reused"
        for more in ({"action": "ADD"}, {"at": "2999-01-01T00:00:00Z"}):
            assert (await s.distribute("/gone", **{**absent, **more})).status_code == 422

    site.run(scenario)


def test_r35_the_audit_log_says_for_whom(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(s: PublisherService) -> None:
        for name in ("mended", "other"):
            await s.announce(name, -1)
        caplog.set_level(logging.INFO, audit.LOGGER)
        await s.accepted("/p0", targets=["other", "mended"])
        await s.accepted("/p0")
        batch = {"requests": [{"action": "ADD", "paths": ["/p0"], "targets": ["mended"]}]}
        assert (await s.client.post("/distribute/batch", json=batch)).status_code == 200
        lines = [vars(one) for one in caplog.records if one.name == audit.LOGGER]
        assert [one.get("targets") for one in lines] == ["other, mended", None, "mended"]

    site.run(scenario)
