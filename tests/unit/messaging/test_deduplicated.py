"""The append layer: each (producer, sequence) once, whatever the journal loses (R26)."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from packhorse.messaging.api import (
    JournalUnavailable,
    NotAppended,
    Outgoing,
    RecordTooLarge,
    TopicSpec,
)
from packhorse.messaging.deduplicated import (
    Answer,
    DeduplicatedLog,
    DuplicateUnknown,
    Outcome,
)
from packhorse.messaging.deduplication import DeduplicationSnapshot, ProducerExpired, ProducerFenced
from packhorse.messaging.known_log import DEFAULT_LIMITS, MemoryLimits
from packhorse.messaging.memory import MemoryJournal, MemoryLog
from packhorse.messaging.numbered import Number, Numbered, number_of
from tests.harness.deduplication import (
    UNKNOWN,
    BlindJournal,
    MemorySnapshots,
    numbered,
    numbers_in,
)

TOPIC = "events"


class Site:
    """One topic, and logs that come and go over it."""

    def __init__(self) -> None:
        self.memory = MemoryLog()
        self.journal = BlindJournal(MemoryJournal(self.memory))
        self.journal.create_topics([TopicSpec(TOPIC, max_record_bytes=1_000)])
        self.snapshots = MemorySnapshots()
        self.log = self.open()

    def open(self, limits: MemoryLimits = DEFAULT_LIMITS) -> DeduplicatedLog:
        """Return what a process that has just started has."""
        self.journal.heal()
        return DeduplicatedLog(self.journal, TOPIC, self.snapshots, name="owner", limits=limits)

    def sequences(self) -> list[int]:
        return [number.sequence for number in numbers_in(self.journal, TOPIC)]


@pytest.fixture
def site() -> Site:
    return Site()


def kinds(outcomes: Sequence[Outcome]) -> list[type]:
    return [type(outcome) for outcome in outcomes]


def test_a_message_is_appended_once_and_then_a_duplicate(site: Site) -> None:
    assert site.log.append(numbered("p", 0)) == Answer(0)
    assert site.log.append(numbered("p", 0)).duplicate
    assert site.log.append(numbered("p", 7)) == Answer(1)
    assert site.sequences() == [0, 7]
    assert site.log.last_sequence("p") == 7


def test_a_record_has_its_number_and_keeps_its_own_headers(site: Site) -> None:
    site.log.append(Numbered("p", 3, 9, Outgoing(b"body", {"mine": b"1"})))
    record = site.journal.read_at(TOPIC, 0)
    assert number_of(record.headers) == Number("p", 3, 9)
    assert (record.value, record.headers["mine"]) == (b"body", b"1")


def test_a_batch_with_a_duplicate_keeps_its_new_entries(site: Site) -> None:
    site.log.append(numbered("p", 1))
    outcomes = site.log.append_all([numbered("p", s) for s in (1, 2, 2, 3)])
    assert outcomes == [Answer(None), Answer(1), Answer(None), Answer(2)]
    assert site.sequences() == [1, 2, 3]


def test_r26_an_unknown_append_that_was_written_is_found_at_its_offset(site: Site) -> None:
    site.log.append(numbered("p", 1))
    site.journal.fail_after(0, UNKNOWN, written=True)
    assert site.log.append(numbered("p", 2)) == Answer(1)
    site.journal.heal()
    assert site.log.append(numbered("p", 2)).duplicate
    assert site.sequences() == [1, 2]


def test_r26_an_unknown_append_that_was_not_written_may_be_tried_again(site: Site) -> None:
    site.journal.fail_after(0, UNKNOWN, written=False)
    with pytest.raises(NotAppended):
        site.log.append(numbered("p", 2))
    site.journal.heal()
    assert site.log.append(numbered("p", 2)) == Answer(0)


@pytest.mark.parametrize("written", [True, False])
def test_r26_unknown_stays_unknown_until_the_journal_can_be_read(site: Site, written: bool) -> None:
    site.log.append(numbered("p", 1))
    site.log.append(numbered("other", 1))
    site.journal.fail_after(0, UNKNOWN, written=written)
    site.journal.blind_after = 1
    outcomes = site.log.append_all([numbered("p", 2)])
    assert kinds(outcomes) == [DuplicateUnknown]
    outcomes = site.log.append_all([numbered("p", s) for s in (1, 2, 3)])
    assert kinds(outcomes) == [Answer, DuplicateUnknown, NotAppended]
    site.journal.blind_after = None
    site.journal.heal()
    assert site.log.append(numbered("p", 2)).duplicate is written
    assert site.sequences() == [1, 1, 2]


def test_a_failed_append_is_not_remembered_as_being_there(site: Site) -> None:
    site.journal.fail_after(1, NotAppended("no"), written=False)
    outcomes = site.log.append_all([numbered("p", s) for s in (1, 2, 3)])
    assert kinds(outcomes) == [Answer, NotAppended, NotAppended]
    site.journal.heal()
    outcomes = site.log.append_all([numbered("p", s) for s in (1, 2, 3)])
    assert outcomes == [Answer(None), Answer(1), Answer(2)]


def test_threads_that_send_the_same_messages_append_each_once(site: Site) -> None:
    def send(begin: int) -> list[Outcome]:
        return site.log.append_all([numbered("p", begin + s) for s in range(10)])

    def source() -> list[Outcome]:
        return [outcome for begin in range(0, 200, 10) for outcome in send(begin)]

    with ThreadPoolExecutor(4) as threads:
        outcomes = [threads.submit(source) for _ in range(4)]
    answers = [answer for one in outcomes for answer in one.result()]
    assert site.sequences() == list(range(200))
    assert kinds(answers) == [Answer] * 800
    assert sum(answer != Answer(None) for answer in answers) == 200


def test_a_record_that_is_too_large_holds_up_those_behind_it(site: Site) -> None:
    large = Numbered("p", 1, 2, Outgoing(bytes(2_000)))
    outcomes = site.log.append_all([numbered("p", 1), large, numbered("p", 3)])
    assert kinds(outcomes) == [Answer, RecordTooLarge, NotAppended]
    outcomes = site.log.append_all([numbered("p", 2), numbered("p", 3)])
    assert kinds(outcomes) == [Answer, Answer]


def test_a_restart_knows_the_sequences_without_any_snapshot(site: Site) -> None:
    site.log.append_all([numbered("p", 1), numbered("q", 5)])
    again = site.open()
    assert (again.last_sequence("p"), again.last_sequence("q")) == (1, 5)
    assert again.append(numbered("q", 5)).duplicate


def test_a_restart_goes_on_from_the_snapshot_and_replays_the_rest(site: Site) -> None:
    site.log.append_all([numbered("p", 1), numbered("q", 5)])
    site.log.take_snapshot()
    assert site.log.unsaved == 0
    site.log.append(numbered("p", 2))
    assert site.log.unsaved == 1
    again = site.open()
    assert (again.last_sequence("p"), again.last_sequence("q")) == (2, 5)
    assert again.unsaved == 1


def test_a_log_that_was_cut_keeps_the_snapshots_sequences(site: Site) -> None:
    site.log.append_all([numbered("p", 1), numbered("q", 5)])
    site.log.take_snapshot()
    site.log.append_all([numbered("p", 2), numbered("p", 3)])
    site.journal.truncate(TOPIC, 3)
    again = site.open()
    assert (again.last_sequence("p"), again.last_sequence("q")) == (3, 5)


@pytest.mark.parametrize("restart", [True, False])
def test_r24_producers_begin_anew_when_the_topic_is_another_one(site: Site, restart: bool) -> None:
    site.log.append_all([numbered("p", s) for s in range(5)])
    site.log.take_snapshot()
    site.memory.remove_topic(TOPIC)
    site.journal.create_topics([TopicSpec(TOPIC)])
    log = site.open() if restart else site.log
    assert log.append(numbered("p", 0)) == Answer(0)
    log.take_snapshot()
    assert site.open().last_sequence("p") == 0


def test_a_topic_that_grew_again_is_noticed_when_a_snapshot_is_taken(site: Site) -> None:
    site.log.append(numbered("p", 5))
    site.memory.remove_topic(TOPIC)
    site.journal.create_topics([TopicSpec(TOPIC)])
    site.open().append(numbered("q", 1))
    for _ in range(3):
        site.journal.append(TOPIC, Outgoing(b"foreign"))
    site.log.take_snapshot()
    assert (site.log.last_sequence("p"), site.log.last_sequence("q")) == (None, 1)


def test_r24_to_begin_anew_is_tried_again_when_the_journal_was_away(site: Site) -> None:
    site.log.append_all([numbered("p", s) for s in range(2)])
    site.memory.remove_topic(TOPIC)
    site.journal.create_topics([TopicSpec(TOPIC)])
    site.journal.blind_after = 1
    with pytest.raises(JournalUnavailable):
        site.log.last_sequence("p")
    site.journal.heal()
    assert site.log.append(numbered("p", 0)) == Answer(0)


def test_what_is_known_is_read_from_the_partition_of_the_key(site: Site) -> None:
    site.journal.create_topics([TopicSpec("keyed", partitions=4)])
    assert site.journal.partition_of("keyed", "agent") != 0
    for duplicate in (False, True):
        log = DeduplicatedLog(site.journal, "keyed", MemorySnapshots(), name="n", key="agent")
        assert log.append(numbered("p", 1)).duplicate is duplicate


def test_records_of_others_lie_between_and_change_nothing(site: Site) -> None:
    site.log.append(numbered("p", 1))
    site.journal.append(TOPIC, Outgoing(b"foreign", {"producer-name": b"p"}))
    site.journal.append(TOPIC, Outgoing(b"foreign", {"producer-name": b"\xff"}))
    assert site.log.append(numbered("p", 2)) == Answer(3)
    site.log.take_snapshot()
    assert site.snapshots.kept["owner"].position == 4


def test_the_newer_of_two_owners_of_a_name_fences_the_older(site: Site) -> None:
    older, newer = site.open(), site.open()
    older.append(numbered("p", 1, epoch=1))
    newer.append(numbered("p", 2, epoch=2))
    with pytest.raises(ProducerFenced):
        older.append(numbered("p", 3, epoch=1))
    with pytest.raises(ProducerFenced):
        site.open().append(numbered("p", 3, epoch=1))
    assert newer.append(numbered("p", 1, epoch=2)).duplicate


def test_a_forgotten_producer_is_refused_after_a_restart_too(site: Site) -> None:
    limits = MemoryLimits(idle_ms=1_000)
    log = site.open(limits)
    log.append_all([numbered("p", 5, epoch=3), numbered("q", 1, epoch=4)])
    log.take_snapshot()
    site.snapshots.time_ms = 1_000
    log.append(numbered("q", 2, epoch=4))
    log.take_snapshot()
    for judge in (log, site.open(limits)):
        with pytest.raises(ProducerExpired):
            judge.append(numbered("p", 6, epoch=3))
    assert log.append(numbered("p", 6, epoch=5)) == Answer(3)


def test_an_owner_that_was_paused_past_retention_learns_from_its_snapshot(site: Site) -> None:
    paused = site.log
    paused.append(numbered("p", 1, epoch=1))
    newer = site.open()
    newer.append_all([numbered("p", s, epoch=2) for s in (2, 3)])
    newer.take_snapshot()
    site.journal.truncate(TOPIC, 3)
    with pytest.raises(ProducerFenced):
        paused.append(numbered("p", 2, epoch=1))


def test_nothing_is_appended_before_the_state_is_recovered(site: Site) -> None:
    site.log.append(numbered("p", 1))
    site.log.take_snapshot()
    site.journal.truncate(TOPIC, 1)
    again = site.open()
    site.journal.blind_after = 0
    with pytest.raises(JournalUnavailable):
        again.append(numbered("p", 2))
    site.journal.blind_after = None
    assert again.append_all([numbered("p", 1), numbered("p", 2)]) == [Answer(None), Answer(1)]


@pytest.mark.parametrize("log_fails", ["store", "journal"])
def test_a_snapshot_that_fails_leaves_the_last_one(site: Site, log_fails: str) -> None:
    class Away(MemorySnapshots):
        def save(self, name: str, snapshot: DeduplicationSnapshot) -> None:
            raise JournalUnavailable("the store is away")

    site.log.append(numbered("p", 1))
    site.log.take_snapshot()
    kept = site.snapshots.kept["owner"]
    store = Away() if log_fails == "store" else site.snapshots
    store.kept = site.snapshots.kept
    log = DeduplicatedLog(site.journal, TOPIC, store, name="owner")
    log.append(numbered("p", 2))
    site.journal.blind_after = 0 if log_fails == "journal" else None
    with pytest.raises(JournalUnavailable):
        log.take_snapshot()
    site.journal.blind_after = None
    assert site.snapshots.kept["owner"] == kept
    assert site.open().last_sequence("p") == 2
