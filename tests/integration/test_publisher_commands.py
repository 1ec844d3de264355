"""Commands over HTTP: issued, sent, seen, ended; who gave them; what may be asked of whom."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from packhorse.db.connect import connect
from packhorse.wire.messages import (
    ClearCommand,
    CommandState,
    ControlCommand,
    DesiredState,
    ResetCommand,
    RetryCommand,
    SubscriptionState,
)
from packhorse_services.publisher.commands import command_rows
from packhorse_services.publisher.commands.clearing import _between
from packhorse_services.publisher.queues.cache.queue_cache import QueueCache
from tests.harness.publisher_commands import becomes, commands, put, report
from tests.harness.publisher_service import PublisherService, as_
from tests.harness.publishing import AGENT, TOPICS


def test_a_clear_is_followed_from_issue_to_end(service: PublisherService) -> None:
    async def scenario(s: PublisherService) -> None:
        await s.announce("sub1", -1, editable=True)
        for number in range(3):
            await s.accepted(f"/p{number}")

        async def queued() -> bool:
            return bool((await s.get("/queues/sub1"))["length"] == 3)

        await s.until(queued)
        accepted = await s.client.post("/queues/sub1/clear")
        command_id = accepted.json()["command_id"]
        assert accepted.headers["location"] == f"/commands/{command_id}"
        sent = await s.get(f"/commands/{command_id}")
        shown = {name: sent[name] for name in ("kind", "subscriber", "agent", "offset", "state")}
        assert shown == {
            "kind": "CLEAR",
            "subscriber": "sub1",
            "agent": "main",
            "offset": 2,
            "state": "SENT",
        }
        assert (sent["issued_by"], sent["removed"], sent["ended_at"]) == ("admin", None, None)
        assert datetime.fromisoformat(sent["issued_at"]) <= datetime.fromisoformat(sent["sent_at"])
        (message,) = commands(s)
        assert isinstance(message, ClearCommand)
        assert message.journal_id == s.author.journal.identity(TOPICS.package)

        report(s, command_id, CommandState.SEEN)
        seen = await becomes(s, command_id, "SEEN")
        assert seen["seen_at"] is not None
        report(s, command_id, CommandState.APPLIED, removed=3)
        applied = await becomes(s, command_id, "APPLIED")
        assert (applied["removed"], applied["seen_at"]) == (3, seen["seen_at"])
        assert applied["ended_at"] is not None

    service.run(scenario)


def test_a_clear_reports_how_many_packages_its_bound_covers(service: PublisherService) -> None:
    async def scenario(s: PublisherService) -> None:
        for number in range(5):
            await s.accepted(f"/p{number}")
        await s.announce("sub1", 1, editable=True)

        async def queued() -> bool:
            return bool((await s.get("/queues/sub1"))["length"] == 3)

        await s.until(queued)
        for bound, covered in {-1: 0, 0: 0, 1: 0, 2: 1, 3: 2, 4: 3}.items():
            answer = await s.client.post("/queues/sub1/clear", json={"up_to_offset": bound})
            reported = answer.json()
            assert (reported["packages"], reported["packages_at_most"]) == (covered, covered), bound
            assert reported["agent"] == AGENT

    service.run(scenario)


def test_a_clear_of_a_queue_that_is_older_than_the_cache_returns_bounds() -> None:
    cache = QueueCache(AGENT, next_offset=100)
    for bound, covered in {-1: (0, 0), 9: (0, 0), 10: (0, 1), 49: (0, 40), 200: (0, 90)}.items():
        extent = _between(cache, 9, bound)
        assert (extent.at_least, extent.at_most) == covered, bound


def test_r24_a_clear_names_the_log_that_its_bound_is_of(
    service: PublisherService, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(s: PublisherService) -> None:
        feed = s.parts.app.state.publisher.queues.feed
        journal_id, need = s.author.journal.identity(TOPICS.package), feed.need

        async def first_read(*given: Any) -> bool:
            feed.identity = journal_id
            return bool(await need(*given))

        await s.announce("sub1", -1, editable=True)
        monkeypatch.setattr(feed, "need", first_read)
        feed.identity = ""
        assert (await s.client.post("/queues/sub1/clear")).status_code == 202
        assert [one.journal_id for one in commands(s)] == [journal_id]

    service.run(scenario)


def test_pause_resume_and_stop_are_commands_too(service: PublisherService) -> None:
    async def scenario(s: PublisherService) -> None:
        await s.announce("sub1", -1, editable=False)
        for _ in range(2):  # asking twice is no error
            paused = await put(s, "pause")
            assert (paused["kind"], paused["state"], paused["offset"]) == ("PAUSE", "SENT", None)
        await put(s, "resume")
        await put(s, "stop")
        desired = [one.desired for one in commands(s) if isinstance(one, ControlCommand)]
        assert desired == [
            DesiredState.PAUSE,
            DesiredState.PAUSE,
            DesiredState.RUN,
            DesiredState.STOP,
        ]
        report(s, paused["command_id"], CommandState.REJECTED, reason="for another journal")
        refused = await becomes(s, paused["command_id"], "REJECTED")
        assert (refused["reason"], refused["removed"]) == ("for another journal", None)

    service.run(scenario)


def test_an_offset_is_reset_only_while_the_subscriber_says_that_it_is_stopped(
    service: PublisherService,
) -> None:
    async def scenario(s: PublisherService) -> None:
        for number in range(3):
            await s.accepted(f"/p{number}")
        not_stopped = (
            SubscriptionState.RUNNING,
            SubscriptionState.PAUSED,
            SubscriptionState.WAITING_FOR_LEASE,
        )
        for retries, state in enumerate(not_stopped, 1):
            await s.announce("sub1", 2, state=state, retries=retries)
            refused = await s.client.patch("/subscribers/sub1/offset", json={"offset": 0})
            assert (refused.status_code, refused.json()["type"]) == (409, "/problems/not-stopped")
            assert "/subscribers/sub1/stop" in refused.json()["detail"]
        await s.announce("sub1", 2, state=SubscriptionState.STOPPED)
        s.author.journal.truncate(TOPICS.package, 1)
        for offset in (-1, 3):
            outside = await s.client.patch("/subscribers/sub1/offset", json={"offset": offset})
            assert (outside.status_code, outside.json()["type"]) == (422, "/problems/outside-log")
        assert commands(s) == []
        for offset in (0, 2):
            accepted = await s.client.patch("/subscribers/sub1/offset", json={"offset": offset})
            assert accepted.status_code == 202
            assert (accepted.json()["kind"], accepted.json()["offset"]) == ("RESET", offset)
        assert [one.offset for one in commands(s) if isinstance(one, ResetCommand)] == [0, 2]
        for body in ({}, {"offset": "1"}, {"offset": 1, "more": 1}, {"offset": -2}):
            wrong = await s.client.patch("/subscribers/sub1/offset", json=body)
            assert wrong.status_code == 422

    service.run(scenario)


def test_r20_a_retry_is_a_command_like_the_others(service: PublisherService) -> None:
    async def scenario(s: PublisherService) -> None:
        await s.announce("sub1", -1)
        answer = await s.client.post("/subscribers/sub1/retry")
        document = answer.json()
        assert answer.status_code == 202
        assert answer.headers["location"] == f"/commands/{document['command_id']}"
        shown = (document["kind"], document["state"], document["offset"], document["issued_by"])
        assert shown == ("RETRY", "SENT", None, "admin")
        (message,) = commands(s)
        journal_id = s.author.journal.identity(TOPICS.package)
        assert isinstance(message, RetryCommand)
        assert (message.user, message.journal_id) == ("admin", journal_id)
        report(s, document["command_id"], CommandState.APPLIED)
        await becomes(s, document["command_id"], "APPLIED")

    service.run(scenario)


def test_nobody_commands_whom_nobody_knows(service: PublisherService) -> None:
    async def scenario(s: PublisherService) -> None:
        for action in ("pause", "resume", "stop"):
            assert (await s.client.put(f"/subscribers/x/{action}")).status_code == 404
        assert (await s.client.post("/subscribers/x/retry")).status_code == 404
        answer = await s.client.patch("/subscribers/x/offset", json={"offset": 0})
        assert answer.status_code == 404
        unknown = await s.client.get(f"/commands/{'0' * 32}")
        assert (unknown.status_code, unknown.json()["type"]) == (404, "/problems/unknown-command")
        for nonsense in ("/commands/nonsense", "/distributions/no.such_one"):
            assert (await s.client.get(nonsense)).status_code == 404, "an unknown id is exit code 3"
        assert (await s.get("/commands"))["commands"] == []

    service.run(scenario)


def test_lists_about_nobody_are_refused_and_what_is_stored_names_somebody(
    service: PublisherService, database_url: str
) -> None:
    with connect(database_url, "tests") as connection:
        command_rows.write(connection, ClearCommand("a" * 32, "left", AGENT, 1))
        command_rows.write(connection, ClearCommand("b" * 32, "elsewhere", "another-agent", 1))

    async def scenario(s: PublisherService) -> None:
        await s.announce("sub1", -1)
        for name in ("nobody", "elsewhere"):
            for path in ("/commands", "/events"):
                refused = await s.client.get(f"{path}?subscriber={name}")
                problem = (refused.status_code, refused.json()["type"])
                assert problem == (404, "/problems/unknown-subscriber"), path
                assert (await s.client.get(f"{path}?subscriber=a%0Ab")).status_code == 404
        assert (await s.get("/commands?subscriber=sub1"))["commands"] == []
        [left] = (await s.get("/commands?subscriber=left"))["commands"]
        assert left["command_id"] == "a" * 32
        assert (await s.get("/commands?subscriber=left&state=APPLIED"))["commands"] == []

    service.run(scenario)


def test_operating_needs_its_scope(database_url: str, tmp_path: Path) -> None:
    service = PublisherService(database_url, tmp_path, authentication=True)

    async def scenario(s: PublisherService) -> None:
        await s.announce("sub1", -1)
        for caller in ("viewer", "editor", "nobody"):
            refused = await s.client.put("/subscribers/sub1/stop", headers=as_(caller))
            assert refused.status_code == 403
            retried = await s.client.post("/subscribers/sub1/retry", headers=as_(caller))
            assert retried.status_code == 403
        assert (await s.client.get("/commands", headers=as_("viewer"))).status_code == 200
        assert (await s.client.get("/commands", headers=as_("nobody"))).status_code == 403

    service.run(scenario)


def test_the_audit_is_shown_newest_first_page_by_page(service: PublisherService) -> None:
    async def scenario(s: PublisherService) -> None:
        for name in ("sub1", "sub2"):
            await s.announce(name, -1)
        given = [
            (await put(s, action, name))["command_id"]
            for name in ("sub1", "sub2")
            for action in ("pause", "resume", "stop")
        ]
        report(s, given[0], CommandState.APPLIED)
        await becomes(s, given[0], "APPLIED")
        first = await s.client.get("/commands?limit=2")
        following = first.json()["next"]
        assert first.headers["link"] == f'<{following}>; rel="next"'
        shown = first.json()["commands"]
        while following:
            document = await s.get(following)
            shown += document["commands"]
            following = document["next"]
        assert [one["command_id"] for one in shown] == given[::-1]
        of_one = await s.get("/commands?subscriber=sub1&limit=2")
        assert [one["command_id"] for one in of_one["commands"]] == [given[2], given[1]]
        rest = await s.get(of_one["next"])
        assert [one["command_id"] for one in rest["commands"]] == [given[0]]
        applied = await s.get("/commands?state=APPLIED")
        assert [one["command_id"] for one in applied["commands"]] == [given[0]]
        for wrong in ("?limit=0", "?cursor=x", "?state=DONE", "?subscriber=%00"):
            assert (await s.client.get(f"/commands{wrong}")).status_code == 422

    service.run(scenario)


def test_r19_a_clear_whose_body_was_lost_on_the_way_clears_nothing(
    service: PublisherService,
) -> None:
    async def scenario(s: PublisherService) -> None:
        for number in range(3):
            await s.accepted(f"/p{number}")
        await s.announce("sub1", -1, editable=True)
        for announced, status in (
            ({"content-type": "application/json"}, 422),
            ({"transfer-encoding": "chunked"}, 422),
            ({"content-type": "application/json", "content-length": "19"}, 400),
        ):
            lost = await s.client.post("/queues/sub1/clear", headers=announced)
            assert lost.status_code == status, lost.text
            assert "announce" in lost.json()["detail"]
        assert commands(s) == []
        assert (await s.client.post("/queues/sub1/clear")).status_code == 202

    service.run(scenario)
