"""What every backend promises of appending: order, keys, sizes, and honest failures (R1, R3)."""

import threading

import pytest

from packhorse.messaging.api import (
    AppendUnknown,
    Bounds,
    Journal,
    LogEnd,
    NotAppended,
    Outgoing,
    RecordTooLarge,
    TopicMissing,
)
from tests.harness.journals import (
    DEADLINE_S,
    JournalOpener,
    append_all,
    create,
    fresh_name,
    read_until,
)


def test_r1_records_come_in_the_order_in_which_one_thread_appended_them(
    journal: Journal, topic: str
) -> None:
    values = [str(number).encode() for number in range(1200)]
    places = append_all(journal, topic, values)
    offsets = [place.offset for place in places]
    assert offsets == sorted(set(offsets))
    with journal.reader(topic, LogEnd.OLDEST) as reader:
        records = read_until(reader, len(values))
    assert [record.value for record in records] == values
    assert [record.offset for record in records] == offsets


def test_a_record_keeps_its_key_its_headers_and_its_bytes(journal: Journal, topic: str) -> None:
    headers = {"message-type": b"X", "binary": bytes(range(256)), "empty": b"", "näme": b"\x00"}
    value = bytes(range(256)) * 3
    place = journal.append(topic, Outgoing(value, headers, "kéy\u0000")).result(DEADLINE_S)
    record = journal.read_at(topic, place.offset, place.partition)
    assert record is not None
    assert (record.value, dict(record.headers), record.key) == (value, headers, "kéy\u0000")
    assert (record.topic, record.partition, record.offset) == (topic, 0, place.offset)


def test_an_empty_record_without_key_and_headers_is_a_record(journal: Journal, topic: str) -> None:
    place = journal.append(topic, Outgoing(b"")).result(DEADLINE_S)
    record = journal.read_at(topic, place.offset)
    assert record is not None
    assert (record.value, dict(record.headers), record.key) == (b"", {}, None)


def test_times_never_go_back_within_a_partition(journal: Journal, topic: str) -> None:
    append_all(journal, topic, [b"x"] * 50)
    with journal.reader(topic, LogEnd.OLDEST) as reader:
        times = [record.time_ms for record in read_until(reader, 50)]
    assert times == sorted(times)
    assert times[0] > 1_600_000_000_000


def test_records_of_one_key_share_the_partition_that_partition_of_names(journal: Journal) -> None:
    topic = create(journal, partitions=3)
    for key in ("a", "b", "ü", "", "subscriber-17"):
        places = append_all(journal, topic, [b"1", b"2"], key=key)
        assert {place.partition for place in places} == {journal.partition_of(topic, key)}
    assert {journal.partition_of(topic, str(number)) for number in range(100)} == {0, 1, 2}
    assert journal.partitions(topic) == 3
    assert append_all(journal, topic, [b"no key"])[0].partition == 0


def test_keys_go_to_the_same_partition_for_ever(journal: Journal) -> None:
    topic = create(journal, partitions=8)
    keys = ["subscriber-1", "subscriber-2", "subscriber-3", "ü"]
    assert [journal.partition_of(topic, key) for key in keys] == [0, 2, 4, 5]


def test_a_record_of_the_largest_size_is_kept_and_a_larger_one_refused(
    journal: Journal, topic: str
) -> None:
    largest = bytes(range(256)) * 4096
    place = journal.append(topic, Outgoing(largest)).result(DEADLINE_S)
    with pytest.raises(RecordTooLarge, match=topic):
        journal.append(topic, Outgoing(largest + b"x")).result(DEADLINE_S)
    record = journal.read_at(topic, place.offset)
    assert record is not None
    assert record.value == largest
    assert append_all(journal, topic, [b"after"])[0].offset > place.offset


def test_a_refused_record_takes_no_other_record_with_it(journal: Journal) -> None:
    topic = create(journal, max_record_bytes=1000)
    futures = [journal.append(topic, Outgoing(b"x" * size)) for size in (1, 1001, 2)]
    assert futures[2].result(DEADLINE_S).offset > futures[0].result(DEADLINE_S).offset
    assert isinstance(futures[1].exception(DEADLINE_S), RecordTooLarge)
    with journal.reader(topic, LogEnd.OLDEST) as reader:
        assert [record.value for record in read_until(reader, 2)] == [b"x", b"xx"]


def test_appending_to_a_topic_that_is_missing_says_so(journal: Journal) -> None:
    missing = fresh_name()
    with pytest.raises(TopicMissing, match=missing):
        journal.append(missing, Outgoing(b"x")).result(DEADLINE_S)


def test_appending_goes_on_after_a_topic_was_created_late(
    journal: Journal, opener: JournalOpener
) -> None:
    topic = fresh_name()
    with pytest.raises(TopicMissing):
        journal.append(topic, Outgoing(b"x")).result(DEADLINE_S)
    created = create(opener.open())
    assert append_all(journal, created, [b"x"])[0].offset == journal.bounds(created).oldest


def test_several_threads_append_through_one_journal(journal: Journal, topic: str) -> None:
    def write(name: str) -> None:
        append_all(journal, topic, [f"{name}-{number:03}".encode() for number in range(100)])

    writers = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for writer in writers:
        writer.start()
    with journal.reader(topic, LogEnd.OLDEST) as reader:
        values = [record.value.decode() for record in read_until(reader, 400)]
    for writer in writers:
        writer.join()
    for name in "abcd":
        own = [value for value in values if value.startswith(name)]
        assert own == [f"{name}-{number:03}" for number in range(100)]


def test_r3_close_leaves_no_append_undecided(
    journal: Journal, topic: str, opener: JournalOpener
) -> None:
    futures = [journal.append(topic, Outgoing(b"x" * 5000)) for _ in range(1000)]
    journal.close()
    assert all(future.done() for future in futures)
    unknown = sum(isinstance(future.exception(), AppendUnknown) for future in futures)
    places = [future.result() for future in futures if future.exception() is None]
    assert len(places) + unknown == len(futures)
    bounds = opener.open().bounds(topic)
    assert len(places) <= bounds.next - bounds.oldest <= len(futures)


def test_r3_appending_to_a_closed_journal_is_certainly_not_done(
    journal: Journal, topic: str, opener: JournalOpener
) -> None:
    journal.close()
    with pytest.raises(NotAppended, match="closed"):
        journal.append(topic, Outgoing(b"x")).result(DEADLINE_S)
    assert opener.open().bounds(topic) == Bounds(0, 0)
