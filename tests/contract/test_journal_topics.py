"""What every backend promises of topics: creation, checks, identity, retention (R4, R24)."""

import contextlib
import threading

import pytest

from packhorse.messaging.api import (
    Bounds,
    Journal,
    LogEnd,
    OffsetOutOfRange,
    Outgoing,
    Reader,
    TopicMissing,
    TopicSpec,
)
from tests.harness.depth import at_depth
from tests.harness.journals import (
    DEADLINE_S,
    JournalOpener,
    KafkaBackend,
    append_all,
    create,
    fresh_name,
    polled,
    read_until,
)
from tests.harness.waiting import eventually


def test_topics_that_were_created_are_in_order(journal: Journal) -> None:
    specs = [
        TopicSpec(fresh_name(), partitions=3, retention_ms=3600_000, max_record_bytes=2_000_000),
        TopicSpec(fresh_name(), retention_ms=-1),
    ]
    journal.create_topics(specs)
    assert journal.check_topics(specs) == []


def test_a_missing_topic_is_named_with_what_to_do(journal: Journal) -> None:
    missing = fresh_name()
    [sentence] = journal.check_topics([TopicSpec(missing)])
    assert missing in sentence
    assert "packhorse topics create" in sentence


@pytest.mark.parametrize(
    ("wanted", "word"),
    [
        ({"partitions": 4}, "partitions"),
        ({"retention_ms": 7200_000}, "keeps"),
        ({"retention_ms": -1}, "keeps"),
        ({"max_record_bytes": 2_000_000}, "bytes"),
    ],
)
def test_a_wrong_topic_is_one_sentence(journal: Journal, wanted: dict[str, int], word: str) -> None:
    requested = {"partitions": 2, "retention_ms": 3600_000, "max_record_bytes": 1_000_000}
    name = create(journal, **requested)
    [sentence] = journal.check_topics([TopicSpec(name, **(requested | wanted))])
    assert name in sentence
    assert word in sentence


def test_creating_again_changes_nothing(journal: Journal, opener: JournalOpener) -> None:
    name = create(journal, partitions=2)
    append_all(journal, name, [b"kept"])
    before = journal.identity(name)
    opener.open().create_topics([TopicSpec(name, partitions=5)])
    assert journal.identity(name) == before
    assert journal.bounds(name).next > 0


def test_two_processes_create_the_same_topics_at_once(opener: JournalOpener) -> None:
    specs = [TopicSpec(fresh_name(), partitions=2) for _ in range(5)]
    creators = [
        threading.Thread(target=opener.open().create_topics, args=(order,))
        for order in (specs, list(reversed(specs)))
    ]
    for creator in creators:
        creator.start()
    for creator in creators:
        creator.join()
    journal = opener.open()
    assert journal.check_topics(specs) == []


def test_r24_identity_is_the_same_for_everybody_and_differs_between_topics(
    journal: Journal, opener: JournalOpener
) -> None:
    one, two = create(journal), create(journal)
    assert journal.identity(one) == opener.open().identity(one)
    assert journal.identity(one) != journal.identity(two)


def test_r24_a_topic_created_anew_has_another_identity(
    journal: Journal, opener: JournalOpener
) -> None:
    name = create(journal)
    append_all(journal, name, [b"old"])
    before = journal.identity(name)
    opener.backend.remove_topic(name)
    fresh = opener.open()
    fresh.create_topics([TopicSpec(name)])
    eventually(lambda: _identity(fresh, name) not in ("", before), "another identity")
    assert fresh.bounds(name) == Bounds(0, 0)


def test_r24_a_journal_that_stayed_open_sees_the_new_topic(
    journal: Journal, opener: JournalOpener
) -> None:
    name = create(journal)
    append_all(journal, name, [b"old"])
    before = journal.identity(name)
    opener.backend.remove_topic(name)
    eventually(lambda: name in "".join(journal.check_topics([TopicSpec(name)])), "it is gone")
    journal.create_topics([TopicSpec(name)])
    eventually(lambda: _identity(journal, name) not in ("", before), "another identity")
    assert append_all(journal, name, [b"new"])[0].offset == 0
    record = journal.read_at(name, 0)
    assert record is not None
    assert record.value == b"new"


def _identity(journal: Journal, topic: str) -> str:
    try:
        return journal.identity(topic)
    except TopicMissing:
        return ""


def test_r4_truncation_moves_the_oldest_up_and_changes_nothing_above(
    journal: Journal, topic: str
) -> None:
    places = append_all(journal, topic, [str(number).encode() for number in range(10)])
    journal.truncate(topic, places[6].offset)
    assert journal.bounds(topic) == Bounds(places[6].offset, places[9].offset + 1)
    assert journal.read_at(topic, places[5].offset) is None
    with journal.reader(topic, LogEnd.OLDEST) as reader:
        records = read_until(reader, 4)
    assert [record.value for record in records] == [b"6", b"7", b"8", b"9"]
    assert [record.offset for record in records] == [place.offset for place in places[6:]]


def test_r4_truncating_lower_than_before_changes_nothing(journal: Journal, topic: str) -> None:
    places = append_all(journal, topic, [b"x"] * 5)
    journal.truncate(topic, places[3].offset)
    journal.truncate(topic, places[1].offset)
    assert journal.bounds(topic).oldest == places[3].offset


def test_r4_an_emptied_topic_goes_on_with_the_next_offset(journal: Journal, topic: str) -> None:
    places = append_all(journal, topic, [b"x"] * 5)
    end = places[-1].offset + 1
    journal.truncate(topic, end)
    assert journal.bounds(topic) == Bounds(end, end)
    assert append_all(journal, topic, [b"y"])[0].offset == end
    with journal.reader(topic, LogEnd.OLDEST) as reader:
        assert [record.offset for record in read_until(reader, 1)] == [end]


def test_r4_truncating_beyond_the_end_is_refused(journal: Journal, topic: str) -> None:
    append_all(journal, topic, [b"x"] * 5)
    bounds = journal.bounds(topic)
    with pytest.raises(OffsetOutOfRange):
        journal.truncate(topic, bounds.next + 1)
    assert journal.bounds(topic) == bounds


def test_r2_a_reader_whose_next_record_is_gone_is_reported(journal: Journal, topic: str) -> None:
    places = append_all(journal, topic, [str(number).encode() for number in range(10)])
    with journal.reader(topic, places[2].offset) as reader:
        journal.truncate(topic, places[6].offset)
        for _ in range(2):
            with pytest.raises(OffsetOutOfRange) as refused:
                read_until(reader, 1)
        assert (refused.value.wanted, refused.value.partition) == (places[2].offset, 0)
        assert refused.value.bounds == journal.bounds(topic)
        reader.seek(LogEnd.OLDEST)
        assert read_until(reader, 1)[0].value == b"6"


def test_r2_a_reader_is_reported_also_when_the_log_went_on(journal: Journal, topic: str) -> None:
    """The jump to detect: records of the reader's past are gone, newer ones are there.

    A backend that has fetched ahead may still deliver what is gone, but not leave any of it out.
    """
    places = append_all(journal, topic, [str(number).encode() for number in range(50)])
    with journal.reader(topic, LogEnd.OLDEST) as reader:
        seen = [record.value for record in read_until(reader, 10, max_records=10)]
        journal.truncate(topic, places[-1].offset + 1)
        append_all(journal, topic, [b"new"])
        with contextlib.suppress(OffsetOutOfRange):
            _read_into(seen, reader, 51)
        assert seen == [*(str(number).encode() for number in range(50)), b"new"][: len(seen)]


def _read_into(seen: list[bytes], reader: Reader, count: int) -> None:
    while len(seen) < count:
        seen.extend(record.value for record in polled(reader))


def test_r2_reading_while_retention_passes_never_jumps(
    journal: Journal, opener: JournalOpener
) -> None:
    topic = create(journal)
    writer, sweeper = opener.open(), opener.open()
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            append_all(writer, topic, [b"x" * 500] * 20)

    def sweep() -> None:
        while not stop.wait(0.05):
            bounds = sweeper.bounds(topic)
            sweeper.truncate(topic, bounds.oldest + (bounds.next - bounds.oldest) * 2 // 3)

    threads = [threading.Thread(target=write), threading.Thread(target=sweep)]
    for thread in threads:
        thread.start()
    try:
        gone = _read_without_jumps(journal, topic, polls=at_depth(60, 12))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert gone or isinstance(opener.backend, KafkaBackend), "who has not fetched ahead is told"


def _read_without_jumps(journal: Journal, topic: str, polls: int) -> int:
    """Return how often the next record was gone; after every third poll, wait until it is."""
    gone, expected = 0, -1  # the oldest is whatever retention has left when the reader begins
    with journal.reader(topic, LogEnd.OLDEST) as reader:
        for number in range(polls):
            try:
                records = read_until(reader, 1, max_records=20)
            except OffsetOutOfRange as error:
                gone, expected = gone + 1, error.bounds.oldest
                reader.seek(expected)
                continue
            for record in records:
                assert record.offset == expected or expected < 0
                expected = record.offset + 1
            if number % 3 == 0:
                _wait_for_oldest_above(journal, topic, expected)
    return gone


def _wait_for_oldest_above(journal: Journal, topic: str, offset: int) -> None:
    eventually(lambda: journal.bounds(topic).oldest > offset, "retention passes", interval=0.005)


def test_a_topic_that_is_missing_is_named(journal: Journal) -> None:
    missing = fresh_name()
    with pytest.raises(TopicMissing, match=missing):
        journal.identity(missing)
    with pytest.raises(TopicMissing, match=missing):
        journal.truncate(missing, 1)
    with pytest.raises(TopicMissing, match=missing):
        journal.retention_ms(missing)
    with pytest.raises(TopicMissing, match=missing):
        journal.retain(missing, 1000)
    with pytest.raises(TopicMissing, match=missing):
        journal.append(missing, Outgoing(b"x")).result(DEADLINE_S)
