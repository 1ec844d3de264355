"""R31: what a subscriber announces counts once the log is known to hold it; asking is bounded."""

from collections.abc import Callable
from dataclasses import replace

from packhorse.messaging.api import Outgoing, Record, TopicSpec
from packhorse.messaging.memory import MemoryJournal, MemoryLog
from packhorse.wire.messages import Action, PackageEntry, PackageMessage, SubscriberState
from packhorse.wire.package_codec import encode_package
from packhorse_services.publisher.queues.cache.position_check import MAX_ID, PositionCheck
from packhorse_services.publisher.queues.cache.queue_cache import QueueCache
from tests.harness.clock import ManualClock


class Asked(MemoryJournal):
    """A journal that counts the records it is asked for, and has some that can't be read."""

    def __init__(self) -> None:
        super().__init__(MemoryLog())
        self.create_topics([TopicSpec("t")])
        self.requested: list[int] = []
        self.damaged: set[int] = set()
        self.meanwhile: Callable[[], None] = lambda: None

    def add(self, *package_ids: str, agent: str = "main") -> None:
        for package_id in package_ids:
            entry = PackageEntry(package_id, agent, Action.INVALIDATE, ("/a",))
            encoded = encode_package(PackageMessage(entry))
            self.append("t", Outgoing(encoded.value, encoded.headers)).result()

    def read_at(self, topic: str, offset: int, partition: int = 0) -> Record | None:
        self.requested.append(offset)
        self.meanwhile()
        return None if offset in self.damaged else super().read_at(topic, offset, partition)


def at(offset: int, package_id: str) -> SubscriberState:
    return SubscriberState("main", offset, package_id=package_id, journal_id="j")


class Played:
    def __init__(self) -> None:
        self.journal, self.cache, self.clock = Asked(), QueueCache("main"), ManualClock()
        self.subject = PositionCheck(self.journal, "t", self.cache, self.clock)

    def tail(self) -> None:
        with self.journal.reader("t", self.cache.next, partition=0) as reader:
            self.cache.extend(reader.poll(0))

    def verdict(self, offset: int, package_id: str) -> bool | None:
        subscription = at(offset, package_id)
        self.subject.check([subscription])
        return self.subject.verdict(subscription)


def test_a_position_of_the_agent_costs_no_reading() -> None:
    played = Played()
    played.journal.add("a", "b")
    played.tail()
    assert played.subject.check([at(1, "b")]), "nothing is to be looked at again"
    assert played.verdict(1, "b") is True
    assert played.journal.requested == []
    assert played.verdict(1, "a") is False
    assert played.journal.requested == [1], "before it is contradicted the record itself is read"


def test_r24_after_the_log_was_looked_at_memory_counts_again() -> None:
    played = Played()
    played.journal.add("a")
    played.subject.distrust()
    played.tail()
    played.subject.trust()
    assert played.verdict(0, "a") is True
    assert played.journal.requested == []


def test_of_a_long_id_as_much_counts_as_is_announced() -> None:
    played = Played()
    played.journal.add("a" * 300)
    played.journal.add("x" * 300, agent="bulk")
    played.tail()
    assert played.verdict(0, "a" * MAX_ID) is True
    assert played.journal.requested == []
    assert played.verdict(1, "x" * MAX_ID) is True


def test_r31_whoever_has_imported_all_that_left_the_log_is_believed() -> None:
    played = Played()
    played.journal.add("x", "y", agent="bulk")
    played.tail()
    played.journal.truncate("t", 1)
    assert played.verdict(0, "x") is True


def test_another_agents_record_is_read_once() -> None:
    played = Played()
    played.journal.add("x", agent="bulk")
    played.tail()
    for _ in range(3):
        assert played.verdict(0, "x") is True
        played.clock.advance(60.0)
    assert played.journal.requested == [0]


def test_r30_of_what_nobody_announces_any_more_nothing_is_kept() -> None:
    played = Played()
    played.journal.add("x", agent="bulk")
    played.tail()
    assert played.verdict(0, "x") is True
    played.subject.check([])
    assert played.subject.verdict(at(0, "x")) is None
    assert (played.subject._requested, played.subject._since) == ({}, {})
    assert played.verdict(0, "z") is False
    played.subject.distrust()
    played.subject.check([])
    assert played.subject.verdict(at(0, "z")) is None


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
    subscription = at(0, "x")
    assert [played.subject.check([subscription]) for _ in range(50)] == [True] * 50
    assert played.subject.verdict(subscription) is None
    assert played.journal.requested == [0]
    assert not played.subject.check([subscription, at(1, "y")]), "the tail is about to read it"
    played.clock.advance(2.0)
    played.journal.damaged.clear()
    assert played.verdict(0, "x") is True


def test_after_a_cut_memory_counts_for_nothing() -> None:
    played = Played()
    played.journal.add("a", "b")
    played.tail()
    assert played.verdict(1, "b") is True
    played.subject.distrust()
    subscription = at(1, "b")
    assert played.subject.verdict(subscription) is None
    del played.journal._log.topics["t"].partitions[0].records[1:]
    assert played.verdict(1, "b") is False
    played.subject.distrust()
    assert played.subject.verdict(subscription) is False, "what was contradicted stays so meanwhile"
    played.journal.add("b")
    assert played.verdict(1, "b") is True, "the right journal is back"
    played.subject.distrust()
    assert played.subject.verdict(subscription) is None, "nothing contradicts it any more"
    assert played.subject.verdict(replace(subscription, package_id="")) is True, "it names none"


def test_r31_what_was_looked_up_while_the_log_was_replaced_counts_for_nothing() -> None:
    played = Played()
    played.journal.add("x", agent="bulk")
    played.tail()
    subscription = at(0, "x")
    played.journal.meanwhile = played.subject.distrust
    assert not played.subject.check([subscription]), "look again at once"
    assert played.subject.verdict(subscription) is None
