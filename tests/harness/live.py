"""Live events without a service: logs in memory, replicas whose tails the test moves."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from fastapi.sse import ServerSentEvent

from packhorse.messaging.api import Outgoing, TopicSpec
from packhorse.messaging.memory import MemoryJournal, MemoryLog
from packhorse.wire.codec import encode_distributed, encode_status
from packhorse.wire.messages import (
    Action,
    PackageDistributed,
    PackageEntry,
    PackageMessage,
    Status,
    StatusMessage,
)
from packhorse.wire.package_codec import encode_package
from packhorse.wire.record import Encoded
from packhorse.wire.topics import Topics
from packhorse_services.publisher.live.agent_log import event_logs
from packhorse_services.publisher.live.event_id import LOGS, mark_of, read_position
from packhorse_services.publisher.live.events import EventType
from packhorse_services.publisher.live.recent_events import RecentEvents
from packhorse_services.publisher.live.stream_reader import StreamFilter, StreamReader

TOPICS = Topics()
AGENT = "main"
NAMES = {
    EventType.PACKAGE: TOPICS.package,
    EventType.STATUS: TOPICS.status,
    EventType.DISTRIBUTED: TOPICS.event,
}
EVERYTHING = StreamFilter(frozenset({EventType.PACKAGE, EventType.STATUS, EventType.DISTRIBUTED}))
NEVER = threading.Event()


def message(
    source: EventType, package_id: str, agent: str = AGENT, subscriber: str = "s"
) -> Encoded:
    """Return a message of the topic of `source` about a package."""
    if source is EventType.PACKAGE:
        return encode_package(PackageMessage(PackageEntry(package_id, agent, Action.ADD, ("/a",))))
    if source is EventType.STATUS:
        return encode_status(StatusMessage(subscriber, agent, "j", 0, Status.REMOVED, package_id))
    reported = PackageDistributed(package_id, agent, 0, ("/a",), imported=(subscriber,))
    return encode_distributed(reported, source="/tests", time="2026-01-01T00:00:00Z")


class Logs:
    """The three topics; each record names its generation of the topic and its offset."""

    def __init__(self) -> None:
        self._log = MemoryLog()
        self.journal = MemoryJournal(self._log)
        self.generation = dict.fromkeys(LOGS, 0)
        self.own: dict[tuple[EventType, int], list[int]] = {}
        self.generation_of: dict[str, int] = {}
        """Of each mark."""
        for source in LOGS:
            self._create(source)

    def _create(self, source: EventType) -> None:
        self.journal.create_topics([TopicSpec(NAMES[source])])
        self.own[source, self.generation[source]] = []
        mark = mark_of(self.journal.identity(NAMES[source]), 0)
        self.generation_of[mark] = self.generation[source]

    def append(self, source: EventType, agent: str = AGENT, **more: str) -> None:
        generation = self.generation[source]
        number = self.journal.bounds(NAMES[source]).next
        encoded = message(source, f"{generation}:{number}", agent, **more)
        self.journal.append(NAMES[source], Outgoing(encoded.value, encoded.headers)).result()
        if agent == AGENT:
            self.own[source, generation].append(number)

    def create_anew(self, source: EventType) -> None:
        self._log.remove_topic(NAMES[source])
        self.generation[source] += 1
        self._create(source)


class Replica:
    """One publisher process: its rings, and tails that read when the test says so."""

    def __init__(self, logs: Logs, ring_events: int = 5) -> None:
        self.logs = event_logs(logs.journal, TOPICS, AGENT)
        self._journal = logs.journal
        self._tails: dict[EventType, tuple[str, int]] = {}
        for source, log in self.logs.items():
            log.recent = RecentEvents(log.recent.decode, events=ring_events)
            self._begin(source)

    def _begin(self, source: EventType) -> None:
        _, mark = self.logs[source].where()
        end = self._journal.bounds(NAMES[source]).next
        self.logs[source].recent.extend(mark, end, (), end)
        self._tails[source] = (mark, end)

    def tail(self, source: EventType, count: int, *, keep: bool = True) -> None:
        """Read up to `count` records, as a tail does."""
        mark, start = self._tails[source]
        bounds = self._journal.bounds(NAMES[source])
        if self.logs[source].where()[1] != mark or start < bounds.oldest:
            self._begin(source)
            return
        with self._journal.reader(NAMES[source], start, partition=0) as reader:
            records = reader.poll(0, max_records=count)
            end = reader.position()
        self.logs[source].recent.extend(mark, start, records, end, keep=keep)
        self._tails[source] = (mark, end)


def read_round(replica: Replica, subscription: StreamReader) -> Iterator[ServerSentEvent]:
    """Yield one round of a stream, as `EventStream` does."""
    for source in subscription.sources():
        found = subscription.recent(source)
        if found is None:
            found = replica.logs[source].read(subscription.cursor(source), NEVER)
        yield from subscription.as_events(source, found)


@dataclass
class Client:
    """Follows replicas, remembers the id it saw last, and checks that it misses nothing."""

    logs: Logs
    wanted: StreamFilter = EVERYTHING
    last_id: str | None = None
    expected: dict[EventType, tuple[int, int]] = field(default_factory=dict)
    seen: int = 0
    gaps: int = 0

    def connect(self, replica: Replica) -> StreamReader:
        position = read_position(self.last_id) if self.last_id else None
        subscription = StreamReader(replica.logs, self.wanted, position)
        if not self.expected:
            for source in LOGS:
                cursor = subscription.cursor(source)  # of an old log until its tail notices
                generation = self.logs.generation_of[cursor.mark]
                if generation == self.logs.generation[source]:
                    assert cursor.offset <= self.logs.journal.bounds(NAMES[source]).next
                self.expected[source] = generation, cursor.offset
        self.last_id = subscription.id
        return subscription

    def take(self, reported: ServerSentEvent) -> None:
        """Check an event against what must come next, and remember its id."""
        document = json.loads(str(reported.raw_data))
        if reported.event == "gap":
            self._take_gap(document)
        else:
            source = _SOURCES[str(reported.event)]
            generation, number = map(int, document["package_id"].split(":"))
            assert (generation, number) == self.next_of(source), reported
            self.expected[source] = generation, number + 1
            self.seen += 1
        self.last_id = reported.id

    def _take_gap(self, gap: dict[str, object]) -> None:
        source = _SOURCES[str(gap["source"])]
        generation, offset = self.expected[source]
        now = self.logs.generation[source]
        oldest = self.logs.journal.bounds(NAMES[source]).oldest
        assert gap["to_offset"] == oldest
        if gap["reason"] == "ANOTHER_LOG":
            assert generation < now
        else:
            assert (gap["reason"], generation) == ("FORGOTTEN", now)
            assert offset <= int(str(gap["from_offset"])) < oldest
        self.expected[source] = now, oldest
        self.gaps += 1

    def next_of(self, source: EventType) -> tuple[int, int] | None:
        generation, offset = self.expected[source]
        numbers = [number for number in self.logs.own[source, generation] if number >= offset]
        return (generation, numbers[0]) if numbers else None


_SOURCES = {
    "package": EventType.PACKAGE,
    "status": EventType.STATUS,
    "distributed": EventType.DISTRIBUTED,
}
