"""Tails and streams on every journal: nothing missed, gaps reported, another topic noticed (R2)."""

import json
import threading
import time
from collections.abc import Iterator

import pytest

from packhorse.clock import SystemClock
from packhorse.messaging.api import Journal, Outgoing
from packhorse.messaging.topics import standard_topics
from packhorse.wire.topics import Topics
from packhorse_services.publisher.live.agent_log import event_logs
from packhorse_services.publisher.live.event_hub import Tail
from packhorse_services.publisher.live.event_id import LOGS, read_position
from packhorse_services.publisher.live.events import EventType
from packhorse_services.publisher.live.stream_reader import StreamReader
from tests.harness.journals import (
    JournalBackend,
    JournalOpener,
    KafkaBackend,
    MemoryBackend,
    SqlBackend,
)
from tests.harness.kafka.broker import RunningKafka
from tests.harness.live import AGENT, EVERYTHING, NEVER, message
from tests.harness.postgres import Databases
from tests.harness.waiting import eventually

JOURNALS = ["memory", "sql", pytest.param("kafka", marks=pytest.mark.kafka)]


@pytest.fixture(params=JOURNALS)
def backend(request: pytest.FixtureRequest) -> JournalBackend:
    match request.param:
        case "sql":
            databases: Databases = request.getfixturevalue("databases")
            return SqlBackend(databases.new("journal"))
        case "kafka":
            broker: RunningKafka = request.getfixturevalue("kafka")
            return KafkaBackend(broker.url)
    return MemoryBackend()


class Installation:
    """Topics of its own, and the logs of one agent with their tails running."""

    def __init__(self, backend: JournalBackend) -> None:
        self._backend, self.opener = backend, JournalOpener(backend)
        self.journal: Journal = self.opener.open()
        self.topics = Topics.named(f"live{time.time_ns()}", {})
        self.names = {
            EventType.PACKAGE: self.topics.package,
            EventType.STATUS: self.topics.status,
            EventType.DISTRIBUTED: self.topics.event,
        }
        self.journal.create_topics(standard_topics(self.topics))
        self.logs = event_logs(self.journal, self.topics, AGENT)
        self.tails = [Tail(log, log.recent.extend, SystemClock()) for log in self.logs.values()]

    def follow(self) -> None:
        for tail in self.tails:
            tail.start()
        eventually(lambda: all(log.recent.begun for log in self.logs.values()))

    def stop(self) -> None:
        for tail in self.tails:
            tail.stop(60)
        self.opener.close()

    def append(self, source: EventType, *package_ids: str) -> None:
        for package_id in package_ids:
            encoded = message(source, package_id)
            record = Outgoing(encoded.value, encoded.headers, AGENT)
            self.journal.append(self.names[source], record).result(120)

    def create_anew(self, source: EventType) -> None:
        name = self.names[source]
        before = self.journal.identity(name)
        self._backend.remove_topic(name)

        def created() -> bool:
            self.journal.create_topics(standard_topics(self.topics))
            return self.journal.identity(name) != before

        eventually(created, timeout=120)

    def reported(self, subscription: StreamReader, count: int) -> list[tuple[str, str]]:
        """Return what a stream sends until `count` events came: name and package, or reason."""
        reported: list[tuple[str, str]] = []

        def enough() -> bool:
            for source in subscription.sources():
                found = subscription.recent(source)
                if found is None:
                    found = self.logs[source].read(subscription.cursor(source), NEVER)
                for one in subscription.as_events(source, found):
                    data = json.loads(str(one.raw_data))
                    reported.append((one.event, data.get("package_id") or data["reason"]))
            return len(reported) >= count

        eventually(enough, timeout=120, what=f"{count} events")
        return reported


@pytest.fixture
def site(backend: JournalBackend) -> Iterator[Installation]:
    installation = Installation(backend)
    yield installation
    installation.stop()


NAMES = {
    EventType.PACKAGE: "package",
    EventType.STATUS: "status",
    EventType.DISTRIBUTED: "distributed",
}


def test_events_come_from_the_ring_and_from_the_journal_alike(site: Installation) -> None:
    for source in LOGS:
        site.append(source, "old")
    site.follow()
    live = StreamReader(site.logs, EVERYTHING)
    late = StreamReader(site.logs, EVERYTHING, read_position("p0-s0-e0"))
    for source in LOGS:
        site.append(source, "a", "b")
    names = NAMES.values()
    assert sorted(site.reported(live, 6)) == sorted((name, one) for name in names for one in "ab")
    everything = site.reported(late, 9)
    for name in names:
        assert [one for kind, one in everything if kind == name] == ["old", "a", "b"]
    assert late.id == live.id
    assert site.reported(live, 0) == []


def test_r2_a_truncated_log_and_r24_another_one_are_reported(site: Installation) -> None:
    site.follow()
    before = StreamReader(site.logs, EVERYTHING).id
    site.append(EventType.STATUS, "a", "b", "c")
    eventually(lambda: site.logs[EventType.STATUS].recent.end().offset == 3)
    site.journal.truncate(site.names[EventType.STATUS], 2)
    for log in site.logs.values():  # as in a publisher that starts now
        log.recent.extend("", 0, (), 0, keep=False)
    late = StreamReader(site.logs, EVERYTHING, read_position(before))
    assert site.reported(late, 2) == [("gap", "FORGOTTEN"), ("status", "c")]
    site.create_anew(EventType.STATUS)
    site.append(EventType.STATUS, "new", "newer", "newest")
    again = StreamReader(site.logs, EVERYTHING, read_position(late.id))
    reported = site.reported(again, 4)
    assert reported[0] == ("gap", "ANOTHER_LOG")
    assert [one for _, one in reported[1:]] == ["new", "newer", "newest"]


def test_reading_ends_when_the_process_does(site: Installation) -> None:
    stopping = threading.Event()
    stopping.set()
    site.append(EventType.STATUS, "a")
    log = site.logs[EventType.STATUS]
    cursor = read_position("p0-s0-e0")[EventType.STATUS]
    found = log.read(cursor, stopping)
    assert found.after.offset == 0
