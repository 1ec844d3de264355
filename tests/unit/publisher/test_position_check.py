"""R31: what a subscriber announces counts once the log is known to hold it; asking is bounded."""

from dataclasses import replace

from packhorse.messaging.api import Outgoing, Record, TopicSpec
from packhorse.messaging.memory import MemoryJournal, MemoryLog
from packhorse.wire.messages import Action, PackageEntry, PackageMessage, SubscriberState
from packhorse.wire.package_codec import encode_package
from packhorse_services.publisher.queues.cache.position_check import PositionCheck
from packhorse_services.publisher.queues.cache.queue_cache import QueueCache
from tests.harness.clock import ManualClock


class Asked(MemoryJournal):
    """A journal that counts the records it is asked for, and has some that can't be read."""

    def __init__(self) -> None:
        super().__init__(MemoryLog())
        self.create_topics([TopicSpec("t")])
        self.requested: list[int] = []
        self.damaged: set[int] = set()

    def add(self, *package_ids: str, agent: str = "main") -> None:
        for package_id in package_ids:
            entry = PackageEntry(package_id, agent, Action.INVALIDATE, ("/a",))
            encoded = encode_package(PackageMessage(entry))
            self.append("t", Outgoing(encoded.value, encoded.headers)).result()

    def read_at(self, topic: str, offset: int, partition: int = 0) -> Record | None:
        self.requested.append(offset)
        return None if offset in self.damaged else super().read_at(topic, offset, partition)


class Played:
    def __init__(self) -> None:
        self.journal, self.cache, self.clock = Asked(), QueueCache("main"), ManualClock()
        self.subject = PositionCheck(self.journal, "t", self.cache, self.clock)

    def tail(self) -> None:
        with self.journal.reader("t", self.cache.next, partition=0) as reader:
            self.cache.extend(reader.poll(0))

    def verdict(self, offset: int, package_id: str) -> bool | None:
        subscription = SubscriberState("main", offset, package_id=package_id, journal_id="j")
        self.subject.check([subscription])
        return self.subject.verdict(subscription)


def test_a_position_of_the_agent_costs_no_reading() -> None:
    played = Played()
    played.journal.add("a", "b")
    played.tail()
    assert played.verdict(1, "b") is True
    assert played.journal.requested == []
    assert played.verdict(1, "a") is False
    assert played.journal.requested == [1], "before it is contradicted the record itself is read"


def test_another_agents_record_is_read_once() -> None:
    played = Played()
    played.journal.add("x", agent="bulk")
    played.tail()
    assert [played.verdict(0, "x") for _ in range(3)] == [True, True, True]
    assert played.journal.requested == [0]


def test_what_the_tail_is_about_to_read_is_waited_for_and_then_asked_for() -> None:
    played = Played()
    played.journal.add("a")
    assert played.verdict(0, "a") is None
    assert played.journal.requested == []
    played.clock.advance(1.0)
    assert played.verdict(0, "a") is True
    played.clock.advance(1.0)
    assert played.verdict(9, "z") is None
    played.clock.advance(1.0)
    assert played.verdict(9, "z") is False, "the log ends before it"


def test_a_record_that_cannot_be_read_is_asked_for_now_and_then() -> None:
    played = Played()
    played.journal.add("x", agent="bulk")
    played.journal.damaged.add(0)
    played.tail()
    subscription = SubscriberState("main", 0, package_id="x", journal_id="j")
    assert [played.subject.check([subscription]) for _ in range(50)] == [True] * 50
    assert played.subject.verdict(subscription) is None
    assert played.journal.requested == [0]
    played.clock.advance(2.0)
    played.journal.damaged.clear()
    assert played.verdict(0, "x") is True


def test_after_a_cut_memory_counts_for_nothing() -> None:
    played = Played()
    played.journal.add("a", "b")
    played.tail()
    assert played.verdict(1, "b") is True
    played.subject.distrust()
    subscription = SubscriberState("main", 1, package_id="b", journal_id="j")
    assert played.subject.verdict(subscription) is None
    del played.journal._log.topics["t"].partitions[0].records[1:]
    assert played.verdict(1, "b") is False
    played.subject.distrust()
    assert played.subject.verdict(subscription) is False, "what was contradicted stays so meanwhile"
    played.journal.add("b")
    assert played.verdict(1, "b") is True, "the right journal is back"
    assert played.subject.verdict(replace(subscription, package_id="")) is True, "it names none"
