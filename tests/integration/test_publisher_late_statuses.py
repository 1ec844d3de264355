"""A repeat of a status that comes late never brings back what has overtaken it (R9, R18)."""

from pathlib import Path

import pytest

from packhorse.db.connect import connect
from packhorse.messaging.api import Outgoing
from packhorse.wire.command_codec import encode_command_status
from packhorse.wire.messages import CommandState, CommandStatusMessage, ResetCommand, Status
from packhorse_services.publisher.commands import command_rows
from tests.harness.publisher_service import PublisherService
from tests.harness.publisher_site import Site, publish, states, until_failed
from tests.harness.publishing import AGENT, TOPICS


@pytest.fixture
def site(database_url: str, tmp_path: Path) -> Site:
    return Site(database_url, tmp_path)


async def failed_again(s: PublisherService, ids: list[str], offset: int) -> int:
    """Repeat the first status, and another one to wait for; returns the error queue's length."""
    s.status("sub1", offset, Status.REMOVED_FAILED, package_id=ids[offset], decided_ms=1_000)
    s.status("sub2", 0, Status.REMOVED_FAILED, package_id=ids[0], decided_ms=1_000)
    await s.announce("sub2", 0)
    await until_failed(s, "sub2", 1)
    return int((await s.get("/queues/sub1/errors"))["length"])


@pytest.mark.parametrize("at_once", [False, True])
def test_r9_a_late_repeat_after_an_import_changes_nothing(site: Site, at_once: bool) -> None:
    async def scenario(s: PublisherService) -> None:
        ids = await publish(s, 2)
        s.status("sub1", 0, Status.REMOVED_FAILED, package_id=ids[0], decided_ms=1_000)
        if not at_once:
            await s.announce("sub1", 0)
            await until_failed(s, "sub1", 1)
        s.status("sub1", 0, Status.IMPORTED, package_id=ids[0], decided_ms=2_000)
        await s.announce("sub1", 1)
        assert await states(s, ids[0]) == {"sub1": "IMPORTED"}
        assert await failed_again(s, ids, 0) == 0
        assert (await states(s, ids[0]))["sub1"] == "IMPORTED"

    site.run(scenario)


def test_r9_a_late_repeat_after_a_reset_changes_nothing_and_a_new_decision_does(
    site: Site,
) -> None:
    async def scenario(s: PublisherService) -> None:
        ids = await publish(s, 2)
        s.status("sub1", 1, Status.REMOVED_FAILED, package_id=ids[1], decided_ms=1_000)
        await s.announce("sub1", 1)
        await until_failed(s, "sub1", 1)
        journal_id = s.journal.identity(TOPICS.package)
        reset = ResetCommand("c" * 32, "sub1", AGENT, 0, journal_id=journal_id)
        with connect(s.author.database_url, "tests") as connection:
            command_rows.write(connection, reset)
        status = CommandStatusMessage("c" * 32, "sub1", AGENT, CommandState.APPLIED)
        encoded = encode_command_status(status)
        s.journal.append(TOPICS.status, Outgoing(encoded.value, encoded.headers)).result()
        assert await failed_again(s, ids, 1) == 0
        assert (await states(s, ids[1]))["sub1"] != "REMOVED_FAILED"
        known = {"package_id": ids[1], "reason": "anew", "decided_ms": 3_000}
        s.status("sub1", 1, Status.REMOVED_FAILED, **known)
        [entry] = (await until_failed(s, "sub1", 1))["entries"]
        assert entry["reason"] == "anew"
        assert (await states(s, ids[1]))["sub1"] == "REMOVED_FAILED"

    site.run(scenario)
