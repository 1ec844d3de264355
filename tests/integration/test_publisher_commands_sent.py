"""What was issued is sent in order, whatever is away or dies, and names its log (R24, R26)."""

import threading
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

from packhorse.clock import SystemClock
from packhorse.db.connect import connect
from packhorse.messaging.api import Appended, Outgoing
from packhorse.messaging.topics import standard_topics
from packhorse.wire.command_codec import decode_command
from packhorse.wire.messages import (
    ClearCommand,
    CommandState,
    CommandStatusMessage,
    ControlCommand,
    DesiredState,
    ResetCommand,
)
from packhorse_services.publisher.commands import command_rows
from packhorse_services.publisher.commands.command_sender import CommandSender
from tests.harness.borrowing import pooled
from tests.harness.postgres import waiting_for_locks
from tests.harness.publisher_commands import becomes, commands, put
from tests.harness.publisher_service import PublisherService
from tests.harness.publishing import AGENT, TOPICS, JournalDouble
from tests.harness.waiting import eventually


def test_what_could_not_be_sent_goes_out_in_order_when_the_journal_is_back(
    database_url: str, tmp_path: Path
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

    PublisherService(database_url, tmp_path, sent_within_s=0.1).run(scenario)


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
            command_rows.write(connection, command)

    async def scenario(s: PublisherService) -> None:
        await becomes(s, "c" * 32, "SENT")
        sent = commands(s)
        assert [type(one) for one in sent] == [ControlCommand, ResetCommand, ClearCommand]
        assert [one.command_id for one in sent] == [one.command_id for one in issued[:3]]
        assert {one.user for one in sent} == {"op"}

    PublisherService(database_url, tmp_path).run(scenario)


def test_what_has_come_of_a_command_can_be_noted_while_the_next_is_sent(
    service: PublisherService,
) -> None:
    url, journal, noted = service.author.database_url, service.author.journal, list[bool]()
    names = "a" * 32, "b" * 32

    class Slow(JournalDouble):
        """Before its second append has ended, the subscriber has seen the first command."""

        def append(self, topic: str, record: Outgoing) -> Future[Appended]:
            appended = journal.append(topic, record)
            if decode_command(record.headers, record.value).command_id == names[1]:
                seen = CommandStatusMessage(names[0], "sub1", AGENT, CommandState.SEEN)
                with connect(url, "tests") as connection:
                    noted.append(command_rows.note_status(connection, seen))
            return appended

    with connect(url, "tests") as connection:
        for name in names:
            pause = ControlCommand(name, "sub1", AGENT, DesiredState.PAUSE, "op", journal_id="j")
            command_rows.write(connection, pause)
    with pooled(url, "tests") as pool:
        sender = CommandSender(pool, Slow(journal), TOPICS.command, AGENT, SystemClock())
        sender.send()
    states = service.author.rows("SELECT state FROM bookkeeping.command ORDER BY command_id")
    assert (noted, states) == ([True], [("SEEN",), ("SENT",)])


def test_r26_one_replica_sends_at_a_time_or_a_resume_could_overtake_its_pause(
    service: PublisherService,
) -> None:
    url, journal, sent = service.author.database_url, service.author.journal, list[str]()
    names = ["a" * 32, "b" * 32]

    class Slow(JournalDouble):
        """Another replica begins to send before the first append has ended."""

        def append(self, topic: str, record: Outgoing) -> Future[Appended]:
            sent.append(decode_command(record.headers, record.value).command_id)
            if len(sent) == 1:
                rival.start()
                eventually(lambda: bool(waiting_for_locks(url)) or len(sent) > 1, "it waits")
            return journal.append(topic, record)

    with connect(url, "tests") as connection:
        for name, desired in zip(names, (DesiredState.PAUSE, DesiredState.RUN), strict=True):
            command_rows.write(connection, ControlCommand(name, "sub1", AGENT, desired, "op"))
    with pooled(url, "tests") as pool:
        sender = CommandSender(pool, Slow(journal), TOPICS.command, AGENT, SystemClock())
        rival = threading.Thread(target=sender.send)
        sender.send()
        rival.join()
    assert sent == names


def test_a_column_that_a_newer_release_has_added_is_passed_over(database_url: str) -> None:
    with connect(database_url, "tests") as connection:
        connection.execute("ALTER TABLE bookkeeping.command ADD COLUMN later text")
        clear = ClearCommand("a" * 32, "sub1", AGENT, 9, "op", journal_id="j")
        command_rows.write(connection, clear)
        waiting = command_rows.next_unsent(connection, AGENT)
        assert waiting is not None
        assert waiting.message() == replace(clear, issued_ms=waiting.message().issued_ms)
        assert command_rows.find(connection, AGENT, "a" * 32) == waiting


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
