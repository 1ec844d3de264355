"""Several entries of an error queue at once: distributed again, once each, or dismissed (R18)."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from packhorse.runtime import audit
from packhorse.wire.messages import Status
from tests.harness.publisher_service import PublisherService, as_
from tests.harness.publisher_site import Site, publish, until_failed

ERRORS = "/queues/sub1/errors"
REASONS = ("a Blob is missing", "constraint violated", "the blob is missing", "out of space")


@pytest.fixture
def site(database_url: str, tmp_path: Path) -> Site:
    return Site(database_url, tmp_path)


async def failing(s: PublisherService) -> list[str]:
    """Let sub1 give up on the first four of five packages, each for a reason of its own."""
    ids = await publish(s)
    for offset, reason in enumerate(REASONS):
        known = {"package_id": ids[offset], "reason": reason, "decided_ms": 1_000 + offset}
        s.status("sub1", offset, Status.REMOVED_FAILED, **known)
    await s.announce("sub1", 4, max_retries=0)
    await until_failed(s, "sub1", len(REASONS))
    return ids


async def ask(s: PublisherService, action: str, **body: Any) -> dict[str, Any]:
    answer = await s.client.post(f"{ERRORS}/{action}", json=body)
    assert answer.status_code in (200, 202), answer.text
    document: dict[str, Any] = answer.json()
    return document


def reported(document: dict[str, Any]) -> list[tuple[int, str]]:
    return [(one["offset"], one["state"]) for one in document["entries"]]


def sent(s: PublisherService) -> list[tuple[str, ...]]:
    """Return the paths of the packages behind those that failed."""
    return [placed.message.entry.paths for placed in s.author.journaled()[5:]]


def test_r18_entries_are_redistributed_by_offset_and_by_reason_and_once_each(site: Site) -> None:
    async def scenario(s: PublisherService) -> None:
        await failing(s)
        first = await ask(s, "redistribute", reason="BLOB is missing")
        assert reported(first) == [(0, "REDISTRIBUTED"), (2, "REDISTRIBUTED")]
        assert sorted(sent(s)) == [("/p0",), ("/p2",)]
        shown = {one["offset"]: one for one in (await s.get(ERRORS))["entries"]}
        made = {one["offset"]: one["distribution_id"] for one in first["entries"]}
        assert {n: one["redistributed_as"] for n, one in shown.items()} == {
            **made,
            1: None,
            3: None,
        }
        assert reported(await ask(s, "redistribute", reason="blob is missing")) == []

        s.author.rows("DELETE FROM content.node WHERE path = '/p3' RETURNING path")
        second = await ask(s, "redistribute", offsets=[2, 1, 3])
        assert reported(second) == [
            (1, "REDISTRIBUTED"),
            (2, "ALREADY_REDISTRIBUTED"),
            (3, "REFUSED"),
        ]
        assert second["entries"][1]["distribution_id"] == made[2]
        assert "'/p3' does not exist" in second["entries"][2]["reason"]
        assert len(sent(s)) == 3

        missing = await s.client.post(f"{ERRORS}/redistribute", json={"offsets": [0, 77]})
        problem = missing.json()
        assert (missing.status_code, problem["type"]) == (404, "/problems/not-in-error-queue")
        assert "77" in problem["detail"]
        assert "nothing was done" in problem["detail"]
        again = await ask(s, "redistribute", offsets=[0], again=True)
        assert reported(again) == [(0, "REDISTRIBUTED")]
        assert len(sent(s)) == 4

    site.run(scenario)


def test_r18_two_who_redistribute_one_entry_make_one_package(site: Site) -> None:
    async def scenario(s: PublisherService) -> None:
        await failing(s)
        path = f"{ERRORS}/0/redistribute"
        both = await asyncio.gather(*(s.client.post(path) for _ in range(2)))
        assert {one.status_code for one in both} <= {202, 409}
        assert 202 in {one.status_code for one in both}
        assert sent(s) == [("/p0",)]
        refused = await s.client.post(path)
        problem = refused.json()
        assert (refused.status_code, problem["type"]) == (409, "/problems/already-redistributed")
        [made] = {one.json()["id"] for one in both if one.status_code == 202}
        assert made in problem["detail"]
        assert (await s.client.post(f"{path}?again=true")).status_code == 202
        assert sent(s) == [("/p0",), ("/p0",)]

    site.run(scenario)


def test_r18_what_was_dismissed_is_gone_from_queue_and_count_and_is_audited(site: Site) -> None:
    ids: list[str] = []

    async def dismiss(s: PublisherService) -> None:
        ids.extend(await failing(s))
        by_reason = await ask(s, "dismiss", reason="blob is missing")
        assert (by_reason["offsets"], by_reason["length"]) == ([0, 2], 2)
        assert (await s.client.delete(f"{ERRORS}/3")).status_code == 204
        again = await s.client.delete(f"{ERRORS}/3")
        assert (again.status_code, again.json()["type"]) == (404, "/problems/not-in-error-queue")
        [queue] = (await s.get("/queues"))["queues"]
        assert queue["errors"] == 1
        redistributed = await s.client.post(f"{ERRORS}/0/redistribute")
        assert redistributed.status_code == 404
        audited = "SELECT issued_by, action, detail -> 'offsets' FROM bookkeeping.audit ORDER BY id"
        assert s.author.rows(audited) == [("admin", "DISMISS", [0, 2]), ("admin", "DISMISS", [3])]

    async def after_a_restart(s: PublisherService) -> None:
        for offset, decided_ms in ((0, 1_000), (2, 5_000)):  # a repeat, and a later decision
            known = {"package_id": ids[offset], "reason": "again", "decided_ms": decided_ms}
            s.status("sub1", offset, Status.REMOVED_FAILED, **known)
        await s.announce("sub1", 4, max_retries=0)
        found = await until_failed(s, "sub1", 2)
        assert [one["offset"] for one in found["entries"]] == [1, 2]
        parts = (await s.get(f"/distributions/{ids[0]}"))["subscribers"]
        assert [one["state"] for one in parts] == ["REMOVED_FAILED"], "what became of it stays"
        assert (await ask(s, "dismiss", offsets=[1, 2]))["length"] == 0

    site.run(dismiss)
    site.run(after_a_restart)


def test_the_audit_log_says_which_entries_it_was(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(s: PublisherService) -> None:
        await failing(s)
        caplog.set_level(logging.INFO, audit.LOGGER)
        for action, body in (
            ("redistribute", {"reason": "blob is missing"}),
            ("redistribute", {"offsets": [0, 1]}),
            ("dismiss", {"offsets": [3, 1]}),
        ):
            await ask(s, action, **body)
        lines = [vars(one) for one in caplog.records if one.name == audit.LOGGER]
        assert [one["offsets"] for one in lines] == [[0, 2], [1], [1, 3]]

    site.run(scenario)


def test_bodies_name_what_they_mean_and_callers_need_the_scope(
    database_url: str, tmp_path: Path
) -> None:
    service = PublisherService(database_url, tmp_path, authentication=True)

    async def scenario(s: PublisherService) -> None:
        for action in ("redistribute", "dismiss"):
            for body in ({}, {"offsets": []}, {"reason": ""}, {"offsets": [-1]}, {"all": True}):
                refused = await s.client.post(f"{ERRORS}/{action}", json=body, headers=as_("admin"))
                assert refused.status_code == 422, (action, body)
        body = {"reason": "x", "again": True}
        refused = await s.client.post(f"{ERRORS}/redistribute", json=body, headers=as_("admin"))
        assert (refused.status_code, "name the offsets" in refused.text) == (422, True)
        for action in ("redistribute", "dismiss"):
            unknown = await s.client.post(
                f"{ERRORS}/{action}", json={"reason": "x"}, headers=as_("admin")
            )
            assert (unknown.status_code, unknown.json()["type"]) == (
                *(404, "/problems/unknown-subscriber"),
            )
            forbidden = await s.client.post(
                f"{ERRORS}/{action}", json={"reason": "x"}, headers=as_("viewer")
            )
            assert forbidden.status_code == 403
        for action in ("redistribute", "dismiss"):
            other = await s.client.delete(f"{ERRORS}/{action}", headers=as_("admin"))
            assert (other.status_code, "path/offset" in other.text) == (422, True)
        for path in (f"{ERRORS}/0", "/subscribers/sub1"):
            assert (await s.client.delete(path, headers=as_("editor"))).status_code == 403

    service.run(scenario)
