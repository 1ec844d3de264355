"""Commands over HTTP: issued, sent, seen, ended; who gave them; what may be asked of whom."""

from pathlib import Path
from typing import Any

import pytest

from packhorse.db.connect import connect
from packhorse.messaging.api import Edge, Outgoing
from packhorse.messaging.topics import standard_topics
from packhorse.wire.command_codec import decode_command, encode_command_status
from packhorse.wire.messages import (
    ClearCommand,
    Command,
    CommandState,
    CommandStatusMessage,
    ControlCommand,
    DesiredState,
    LaneState,
    ResetCommand,
)
from packhorse_services.publisher.commands import store
from packhorse_services.publisher.commands.clearing import _between
from packhorse_services.publisher.queues.cache import QueueCache
from tests.harness.publisher_service import PublisherService, as_
from tests.harness.publishing import AGENT, TOPICS, page


@pytest.fixture
def service(database_url: str, tmp_path: Path) -> PublisherService:
    service = PublisherService(database_url, tmp_path)
    service.author.write(*(page(f"/p{number}") for number in range(5)))
    return service


def commands(s: PublisherService) -> list[Command]:
    with s.author.journal.reader(TOPICS.command, Edge.OLDEST) as reader:
        return [decode_command(record.headers, record.value) for record in reader.poll(0.1)]


def tell(s: PublisherService, command_id: str, state: CommandState, **more: Any) -> None:
    """Say what a subscriber would of a command."""
    known = {"subscriber": "sub1", "publisher_agent": AGENT, **more}
    encoded = encode_command_status(CommandStatusMessage(command_id, state=state, **known))
    record = Outgoing(encoded.value, encoded.headers)
    s.author.journal.append(TOPICS.status, record).result(10)


async def becomes(s: PublisherService, command_id: str, state: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    async def has() -> bool:
        found.update(await s.get(f"/commands/{command_id}"))
        return bool(found["state"] == state)

    await s.until(has)
    return found


async def put(s: PublisherService, action: str, name: str = "sub1") -> dict[str, Any]:
    answer = await s.client.put(f"/subscribers/{name}/{action}")
    assert answer.status_code == 202, answer.text
    document: dict[str, Any] = answer.json()
    assert answer.headers["location"] == f"/commands/{document['command_id']}"
    return document


def test_lim_6_a_clear_is_followed_from_issue_to_end(service: PublisherService) -> None:
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
        assert sent["issued_at"] <= sent["sent_at"]
        (message,) = commands(s)
        assert isinstance(message, ClearCommand)
        assert message.journal_id == s.author.journal.identity(TOPICS.package)

        tell(s, command_id, CommandState.SEEN)
        seen = await becomes(s, command_id, "SEEN")
        assert seen["seen_at"] is not None
        tell(s, command_id, CommandState.APPLIED, removed=3)
        applied = await becomes(s, command_id, "APPLIED")
        assert (applied["removed"], applied["seen_at"]) == (3, seen["seen_at"])
        assert applied["ended_at"] is not None

    service.run(scenario)


def test_a_clear_tells_how_many_packages_its_bound_covers(service: PublisherService) -> None:
    async def scenario(s: PublisherService) -> None:
        for number in range(5):
            await s.accepted(f"/p{number}")
        await s.announce("sub1", 1, editable=True)

        async def queued() -> bool:
            return bool((await s.get("/queues/sub1"))["length"] == 3)

        await s.until(queued)
        for bound, covered in {-1: 0, 0: 0, 1: 0, 2: 1, 3: 2, 4: 3}.items():
            answer = await s.client.post("/queues/sub1/clear", json={"up_to_offset": bound})
            told = answer.json()
            assert (told["packages"], told["packages_at_most"]) == (covered, covered), bound
            assert told["agent"] == AGENT

    service.run(scenario)


def test_a_clear_of_a_queue_that_is_older_than_the_cache_tells_bounds() -> None:
    cache = QueueCache(AGENT, next_offset=100)
    for bound, covered in {-1: (0, 0), 9: (0, 0), 10: (0, 1), 49: (0, 40), 200: (0, 90)}.items():
        extent = _between(cache, 9, bound)
        assert (extent.at_least, extent.at_most) == covered, bound


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
        tell(s, paused["command_id"], CommandState.REJECTED, reason="for another journal")
        refused = await becomes(s, paused["command_id"], "REJECTED")
        assert (refused["reason"], refused["removed"]) == ("for another journal", None)

    service.run(scenario)


def test_an_offset_is_reset_only_while_the_subscriber_says_that_it_is_stopped(
    service: PublisherService,
) -> None:
    async def scenario(s: PublisherService) -> None:
        for number in range(3):
            await s.accepted(f"/p{number}")
        not_stopped = (LaneState.RUNNING, LaneState.PAUSED, LaneState.WAITING_FOR_LEASE)
        for retries, state in enumerate(not_stopped, 1):
            await s.announce("sub1", 2, state=state, retries=retries)
            refused = await s.client.patch("/subscribers/sub1/offset", json={"offset": 0})
            assert (refused.status_code, refused.json()["type"]) == (409, "/problems/not-stopped")
            assert "/subscribers/sub1/stop" in refused.json()["detail"]
        await s.announce("sub1", 2, state=LaneState.STOPPED)
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


def test_nobody_commands_whom_nobody_knows(service: PublisherService) -> None:
    async def scenario(s: PublisherService) -> None:
        for action in ("pause", "resume", "stop"):
            assert (await s.client.put(f"/subscribers/x/{action}")).status_code == 404
        answer = await s.client.patch("/subscribers/x/offset", json={"offset": 0})
        assert answer.status_code == 404
        unknown = await s.client.get(f"/commands/{'0' * 32}")
        assert (unknown.status_code, unknown.json()["type"]) == (404, "/problems/unknown-command")
        assert (await s.client.get("/commands/nonsense")).status_code == 422
        assert (await s.get("/commands"))["commands"] == []

    service.run(scenario)


def test_lists_about_nobody_are_refused_and_what_is_stored_names_somebody(
    service: PublisherService, database_url: str
) -> None:
    with connect(database_url, "tests") as connection:
        store.write(connection, ClearCommand("a" * 32, "left", AGENT, 1))
        store.write(connection, ClearCommand("b" * 32, "elsewhere", "another-agent", 1))

    async def scenario(s: PublisherService) -> None:
        await s.announce("sub1", -1)
        for name in ("nobody", "elsewhere"):
            for path in ("/commands", "/events"):
                refused = await s.client.get(f"{path}?subscriber={name}")
                problem = (refused.status_code, refused.json()["type"])
                assert problem == (404, "/problems/unknown-subscriber"), path
        assert (await s.client.get("/events?subscriber=%00")).status_code in (404, 422)
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
        tell(s, given[0], CommandState.APPLIED)
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


def test_what_could_not_be_sent_goes_out_in_order_when_the_journal_is_back(
    service: PublisherService,
) -> None:
    async def scenario(s: PublisherService) -> None:
        await s.announce("sub1", -1, editable=True)
        await s.client.get("/queues/sub1")
        s.journal.away = True
        clear = await s.client.post("/queues/sub1/clear")
        assert clear.status_code == 202
        waiting = await s.get(f"/commands/{clear.json()['command_id']}")
        assert (waiting["state"], waiting["sent_at"]) == ("ISSUED", None)
        again = await s.client.post("/queues/sub1/clear")
        s.journal.away = False
        await becomes(s, again.json()["command_id"], "SENT")
        ids = [one.command_id for one in commands(s)]
        assert ids == [clear.json()["command_id"], again.json()["command_id"]]

    service.run(scenario)


def test_r26_a_command_whose_publisher_died_is_sent_by_the_next(
    database_url: str, tmp_path: Path
) -> None:
    issued = [
        ControlCommand("a" * 32, "sub1", AGENT, DesiredState.PAUSE, "op", journal_id="j"),
        ResetCommand("b" * 32, "sub1", AGENT, 7, "op", journal_id="j"),
        ClearCommand("c" * 32, "sub1", AGENT, 9, "op", journal_id="j"),
        ClearCommand("d" * 32, "sub1", "another-agent", 9, "op", journal_id="j"),
    ]
    with connect(database_url, "tests") as connection:
        for command in issued:
            store.write(connection, command)

    async def scenario(s: PublisherService) -> None:
        await becomes(s, "c" * 32, "SENT")
        sent = commands(s)
        assert [type(one) for one in sent] == [ControlCommand, ResetCommand, ClearCommand]
        assert [one.command_id for one in sent] == [one.command_id for one in issued[:3]]
        assert {one.user for one in sent} == {"op"}

    PublisherService(database_url, tmp_path).run(scenario)


def test_a_clear_of_offsets_names_the_log_that_they_belong_to(service: PublisherService) -> None:
    async def scenario(s: PublisherService) -> None:
        await s.announce("sub1", -1, editable=True)
        await s.accepted("/p0")
        before = s.author.journal.identity(TOPICS.package)
        await s.client.post("/queues/sub1/clear")
        s.author.journal._log.remove_topic(TOPICS.package)  # type: ignore[attr-defined]
        s.author.journal.create_topics(standard_topics(TOPICS))
        await put(s, "pause")
        assert [one.journal_id for one in commands(s)] == [
            before,
            s.author.journal.identity(TOPICS.package),
        ]

    service.run(scenario)


NOTED = ("state", "removed", "reason")


class TestNoting:
    """What is told of a command changes its row forward only."""

    COMMAND = ClearCommand("a" * 32, "sub1", AGENT, 9, "op", journal_id="j")

    @pytest.fixture
    def note(self, database_url: str) -> Any:
        with connect(database_url, "tests") as connection:
            store.write(connection, self.COMMAND)

            def note(state: CommandState, **more: Any) -> tuple[bool, tuple[Any, ...]]:
                known = {"subscriber": "sub1", "publisher_agent": AGENT, **more}
                command_id = known.pop("command_id", "a" * 32)
                news = store.note_status(
                    connection, CommandStatusMessage(command_id, state=state, **known)
                )
                found = store.find(connection, AGENT, "a" * 32)
                assert found is not None
                return news, (found.state, found.removed, found.reason)

            yield note

    def test_a_repeat_and_a_step_back_mean_nothing(self, note: Any) -> None:
        assert note(CommandState.SEEN) == (True, ("SEEN", None, ""))
        assert note(CommandState.SEEN) == (False, ("SEEN", None, ""))
        assert note(CommandState.APPLIED, removed=4) == (True, ("APPLIED", 4, ""))
        for state in CommandState:
            assert note(state, removed=9, reason="x") == (False, ("APPLIED", 4, ""))

    def test_the_end_may_be_told_before_the_publisher_knows_that_it_was_sent(
        self, note: Any
    ) -> None:
        assert note(CommandState.REJECTED, reason="no") == (True, ("REJECTED", 0, "no"))

    @pytest.mark.parametrize(
        "wrong",
        [
            {"subscriber": "sub2"},
            {"publisher_agent": "another"},
            {"command_id": "b" * 32},
            {"command_id": "a\0"},
            {"subscriber": "x" * 10_000},
        ],
    )
    def test_what_is_not_about_this_command_changes_nothing(self, note: Any, wrong: Any) -> None:
        assert note(CommandState.APPLIED, **wrong) == (False, ("ISSUED", None, ""))

    @pytest.mark.parametrize(
        "odd",
        [
            {"decided_ms": 2**63 - 1},
            {"decided_ms": -(2**63)},
            {"removed": -5, "reason": "\0" + "x" * 10_000},
        ],
    )
    def test_r30_odd_values_are_bounded(self, note: Any, odd: Any) -> None:
        news, (state, removed, reason) = note(CommandState.APPLIED, **odd)
        assert (news, state, removed) == (True, "APPLIED", 0)
        assert len(reason) <= 1_000

    def test_old_commands_are_forgotten_in_batches(self, note: Any, database_url: str) -> None:
        with connect(database_url, "tests") as connection:
            for number in range(5):
                store.write(connection, ClearCommand(f"{number:032x}", "sub1", AGENT, 1))
            connection.execute(
                "UPDATE bookkeeping.command SET issued_at = now() - interval '31 days' "
                "WHERE command_id < 'a'"
            )
            month = 30 * 24 * 3600.0
            assert [store.forget(connection, month, 3) for _ in range(3)] == [3, 2, 0]
