"""Records of the journal, decoded, over HTTP."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from packhorse.blobs.api import package_key
from packhorse.blobs.open import open_blobs
from packhorse.content.node import Binary, Node
from packhorse.messaging.api import Outgoing
from packhorse.messaging.memory import MemoryJournal
from packhorse.messaging.memory_log import MemoryLog
from packhorse.messaging.topics import standard_topics
from packhorse.packages.body import pack
from packhorse.wire.codec import encode_discovery, encode_distributed, encode_status
from packhorse.wire.command_codec import encode_command
from packhorse.wire.messages import (
    Action,
    ClearCommand,
    DiscoveryMessage,
    PackageDistributed,
    PackageEntry,
    PackageMessage,
    Status,
    StatusMessage,
    SubscriberState,
)
from packhorse.wire.package_codec import encode_package
from packhorse.wire.record import Encoded
from packhorse.wire.topics import Topics
from packhorse_services.cleanup.journal_routes import RecordsPage
from packhorse_services.cleanup.keeping import NotInLog
from packhorse_services.cleanup.records import JournalRecord, Records
from tests.harness.clock import ManualClock

TOPICS = Topics()
NODE = Node("/site/news", "page", '{"title": "News"}', (Binary("data", "ab" * 32, 7, "image/png"),))


class Log:
    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.journal = MemoryJournal(MemoryLog(self.clock))
        self.journal.create_topics(standard_topics(TOPICS))
        self.blobs = open_blobs(str(folder))
        self.records = Records(self.journal, self.blobs)

    def append(self, topic: str, message: Encoded, key: str | None = None) -> int:
        record = Outgoing(message.value, message.headers, key)
        return self.journal.append(topic, record).result(120).offset

    def package(
        self, number: int, *, inline_bytes: int = 1_000_000, nodes: Sequence[Node] = (NODE,)
    ) -> int:
        package_id = f"dstrpck-{number}-0badcafe"
        packed = pack(nodes, package_id, self.blobs, inline_bytes=inline_bytes)
        entry = PackageEntry(
            package_id, "main", Action.ADD, ("/site/news",), body_length=packed.length
        )
        return self.append(TOPICS.package, encode_package(PackageMessage(entry, packed.body)))

    def read(self, topic: str = TOPICS.package, **wanted: Any) -> list[JournalRecord]:
        asked = {"partition": 0, "start": None, "limit": 20, "bodies": False, **wanted}
        return self.records.read(topic, **asked).records


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "blobs")


@pytest.mark.parametrize("inline_bytes", [1_000_000, 0])
def test_a_packages_body_is_shown_wherever_it_is(log: Log, inline_bytes: int) -> None:
    log.package(1, inline_bytes=inline_bytes)
    [one] = log.read(bodies=True)
    assert one.message is not None
    assert one.message["entry"]["action"] == "ADD"
    assert one.message["entry"]["paths"] == ["/site/news"]
    assert one.nodes is not None
    assert one.nodes[0]["properties"] == {"title": "News"}
    assert one.nodes[0]["binaries"]["data"]["length"] == 7
    assert not one.more_nodes
    inline = f"{one.message['entry']['body_length']} bytes" if inline_bytes else None
    assert one.message["body"]["inline"] == inline
    assert one.model_dump_json(), "JSON can hold it"
    [without] = log.read()
    assert without.nodes is None


@pytest.mark.parametrize(("size", "shown"), [(400_000, 2), (1_048_560, 0), (10, 100)])
def test_r30_what_is_shown_of_a_body_is_bounded(log: Log, size: int, shown: int) -> None:
    large = [Node(f"/p{n:03}", "page", '{"x": "' + "x" * size + '"}') for n in range(101)]
    log.package(1, nodes=large[: 4 if size > 10 else 101])
    [one] = log.read(bodies=True)
    assert one.nodes is not None
    assert (len(one.nodes), one.more_nodes, one.wrong) == (shown, True, "")


@pytest.mark.parametrize(
    "properties",
    ['{"a": "\\ud800"}', *('{"a": ' + "[" * n + "]" * n + "}" for n in (300, 100_000)), "no JSON"],
)
def test_r30_what_json_can_not_hold_spoils_no_page(log: Log, properties: str) -> None:
    log.package(1, nodes=[Node("/odd", "page", properties)])
    log.package(2)
    first, second = log.read(bodies=True)
    assert first.nodes is not None or first.wrong
    assert first.model_dump_json(), "JSON can hold it"
    assert second.nodes is not None


def test_r30_bodies_are_shown_of_one_record() -> None:
    assert RecordsPage(bodies=True, limit=1).bodies
    with pytest.raises(ValidationError, match="limit=1"):
        RecordsPage(bodies=True)


def test_each_kind_of_message_is_decoded(log: Log) -> None:
    sent = {
        TOPICS.status: encode_status(StatusMessage("sub1", "main", "j", 0, Status.IMPORTED)),
        TOPICS.discovery: encode_discovery(DiscoveryMessage("sub1", (SubscriberState("main", 4),))),
        TOPICS.command: encode_command(ClearCommand("c1", "sub1", "main", 7)),
        TOPICS.event: encode_distributed(
            PackageDistributed("p1", "main", 0), source="/main", time="2026-01-01T12:00:00Z"
        ),
    }
    for topic, message in sent.items():
        log.append(topic, message)
        [one] = log.read(topic)
        assert (one.wrong, one.message is not None) == ("", True), topic
        assert one.type
        assert one.model_dump_json()


def test_they_are_read_by_offset_by_time_or_the_newest(log: Log) -> None:
    for number in range(5):
        log.package(number)
        log.clock.advance(60)
    assert [one.offset for one in log.read(limit=2)] == [3, 4]
    assert [one.offset for one in log.read(start=1, limit=2)] == [1, 2]
    third = log.read(start=2, limit=1)[0].time
    assert [one.offset for one in log.read(start=third)] == [2, 3, 4]
    assert log.read(start=99) == []
    log.journal.truncate(TOPICS.package, 3)
    assert [one.offset for one in log.read(start=0)] == [3, 4]
    with pytest.raises(NotInLog, match="no partition 1"):
        log.read(partition=1)


def test_r30_a_damaged_record_and_a_made_up_time_are_shown(log: Log) -> None:
    for number in range(2):
        log.package(number)
    torn, odd = (log.journal.read_at(TOPICS.package, offset) for offset in (0, 1))
    assert torn is not None
    assert odd is not None
    # The log in memory gives out what it keeps.
    torn.headers, torn.time_ms, torn.damage = {}, 0, "its page is torn"
    odd.time_ms = 10**18
    damaged, strange = log.read()
    assert (damaged.time, damaged.wrong) == (None, "its page is torn")
    assert (strange.time, strange.wrong) == (None, "")


def test_r30_what_is_no_message_is_shown_with_the_reason(log: Log) -> None:
    log.append(TOPICS.package, Encoded({"message-type": b"x" * 1_000}, b"x"))
    good = encode_package(PackageMessage(PackageEntry("p1", "main", Action.TEST)))
    log.append(TOPICS.package, Encoded(good.headers, b"\xff"))
    log.package(2, inline_bytes=0)
    log.blobs.delete(package_key("dstrpck-2-0badcafe"))
    strange, cut, missing = log.read(bodies=True)
    assert (strange.wrong, strange.type) == ("it is no message of packhorse", "x" * 100)
    assert cut.message is None
    assert cut.wrong
    assert missing.message is not None
    assert missing.wrong, "the body is not there"
