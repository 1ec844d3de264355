"""What becomes of each message of a batch of which another one fails, or is under way (R26)."""

from concurrent.futures import Future

import pytest

from packhorse.errors import PackhorseError
from packhorse.messaging import deduplicated
from packhorse.messaging.api import Appended, NotAppended, Outgoing, RecordTooLarge, TopicSpec
from packhorse.messaging.deduplicated import Answer, DeduplicatedLog, Outcome, SequenceOvertaken
from packhorse.messaging.deduplication import ProducerFenced
from packhorse.messaging.memory import MemoryJournal, MemoryLog
from tests.harness.deduplication import BlindJournal, MemorySnapshots, numbered

TOPIC = "events"


class Slow(MemoryJournal):
    """Leaves the first append under way, and appends the others at once."""

    def __init__(self) -> None:
        super().__init__(MemoryLog())
        self.create_topics([TopicSpec(TOPIC)])
        self.first: Future[Appended] | None = None

    def append(self, topic: str, record: Outgoing) -> Future[Appended]:
        if self.first is None:
            self.first = Future()
            return self.first
        return self.second(topic, record)

    def second(self, topic: str, record: Outgoing) -> Future[Appended]:
        return super().append(topic, record)


class Overtaking(Slow):
    """Confirms the second append and then fails the first.

    No journal should do that, but Kafka does where it can't be asked how large a record may be.
    """

    def __init__(self, failure: PackhorseError) -> None:
        super().__init__()
        self._failure = failure

    def second(self, topic: str, record: Outgoing) -> Future[Appended]:
        confirmed = super().second(topic, record)
        assert self.first is not None
        self.first.set_exception(self._failure)
        return confirmed


class Full(Slow):
    """Has no room for the second append, and again for the third."""

    refused = 0

    def second(self, topic: str, record: Outgoing) -> Future[Appended]:
        self.refused += 1
        if self.refused > 1:
            return super().second(topic, record)
        refused: Future[Appended] = Future()
        refused.set_exception(NotAppended("too much waits"))
        return refused


def kinds(journal: Slow, count: int) -> list[type[Outcome]]:
    log = DeduplicatedLog(journal, TOPIC, MemorySnapshots(), name="owner")
    return [type(one) for one in log.append_all([numbered("p", s) for s in range(count)])]


@pytest.mark.parametrize("failure", [NotAppended("no"), RecordTooLarge("no")])
def test_a_message_that_was_overtaken_is_never_called_a_duplicate(failure: PackhorseError) -> None:
    assert kinds(Overtaking(failure), 3) == [SequenceOvertaken, Answer, NotAppended]


def test_nothing_is_appended_behind_what_was_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deduplicated, "_FUTURE_S", 0)
    assert kinds(Full(), 3) == [NotAppended] * 3


def test_a_fenced_message_costs_the_others_nothing() -> None:
    journal = BlindJournal(MemoryJournal(MemoryLog()))
    journal.create_topics([TopicSpec(TOPIC)])
    log = DeduplicatedLog(journal, TOPIC, MemorySnapshots(), name="owner")
    log.append(numbered("p", 1, epoch=2))
    fenced, other, later = numbered("p", 2), numbered("q", 1), numbered("q", 2)
    assert [type(one) for one in log.append_all([fenced, other])] == [ProducerFenced, Answer]
    journal.blind_after = 0
    assert [type(one) for one in log.append_all([fenced, later])] == [ProducerFenced, NotAppended]
