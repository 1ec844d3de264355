"""What every backend promises of reading: places, limits, and no silent jump (R1, R2)."""

import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from packhorse.messaging.api import (
    Bounds,
    Journal,
    LogEnd,
    OffsetOutOfRange,
    Outgoing,
    Position,
    Reader,
    Since,
    TopicMissing,
)
from tests.harness.journals import (
    DEADLINE_S,
    JournalOpener,
    append_all,
    create,
    fresh_name,
    polled,
    read_until,
)


def _numbers(count: int) -> list[bytes]:
    return [str(number).encode() for number in range(count)]


def _first(journal: Journal, topic: str, start: Position) -> bytes:
    with journal.reader(topic, start) as reader:
        return read_until(reader, 1)[0].value


def test_r2_a_reader_starts_at_any_offset(journal: Journal, topic: str) -> None:
    places = append_all(journal, topic, _numbers(20))
    for number in (0, 1, 7, 19):
        assert _first(journal, topic, places[number].offset) == str(number).encode()


def test_r2_a_reader_starts_at_the_oldest(journal: Journal, topic: str) -> None:
    append_all(journal, topic, _numbers(5))
    assert _first(journal, topic, LogEnd.OLDEST) == b"0"


def test_r2_next_is_what_comes_after_the_reader_was_opened(journal: Journal, topic: str) -> None:
    append_all(journal, topic, _numbers(5))
    with journal.reader(topic, LogEnd.NEXT) as reader:
        append_all(journal, topic, [b"new"])
        assert [record.value for record in read_until(reader, 1)] == [b"new"]


def test_r1_a_reader_says_below_what_it_has_returned_all(journal: Journal, topic: str) -> None:
    append_all(journal, topic, _numbers(5))
    with journal.reader(topic, 1) as reader:
        assert reader.position() == 1
        assert len(read_until(reader, 2, max_records=2)) == 2
        assert reader.position() == 3
        read_until(reader, 2)
        assert reader.position() == journal.bounds(topic).next == 5


def test_r2_a_reader_starts_at_a_time(journal: Journal, topic: str) -> None:
    append_all(journal, topic, [b"before"])
    time.sleep(0.02)
    middle = journal.append(topic, Outgoing(b"middle")).result(DEADLINE_S)
    record = journal.read_at(topic, middle.offset)
    assert record is not None
    assert _first(journal, topic, Since(record.time_ms)) == b"middle"
    assert _first(journal, topic, Since(0)) == b"before"
    with journal.reader(topic, Since(record.time_ms + 3600_000)) as reader:
        append_all(journal, topic, [b"after"])
        assert [found.value for found in read_until(reader, 1)] == [b"after"]


def test_offset_at_finds_the_first_record_that_is_not_older(journal: Journal, topic: str) -> None:
    places = append_all(journal, topic, [b"a"])
    time.sleep(0.02)
    places += append_all(journal, topic, [b"b"])
    second = journal.read_at(topic, places[1].offset)
    assert second is not None
    assert journal.offset_at(topic, 0) == places[0].offset
    assert journal.offset_at(topic, second.time_ms) == places[1].offset
    assert journal.offset_at(topic, second.time_ms + 1) == journal.bounds(topic).next


def test_bounds_of_an_empty_and_a_filled_topic(journal: Journal, topic: str) -> None:
    assert journal.bounds(topic) == Bounds(0, 0)
    places = append_all(journal, topic, _numbers(3))
    assert journal.bounds(topic) == Bounds(places[0].offset, places[-1].offset + 1)


def test_read_at_returns_the_record_or_none(journal: Journal, topic: str) -> None:
    places = append_all(journal, topic, _numbers(3))
    record = journal.read_at(topic, places[1].offset)
    assert record is not None
    assert record.value == b"1"
    assert journal.read_at(topic, places[-1].offset + 1) is None
    assert journal.read_at(topic, -1) is None


def test_r2_an_offset_beyond_the_end_is_reported(journal: Journal, topic: str) -> None:
    append_all(journal, topic, _numbers(3))
    bounds = journal.bounds(topic)
    assert _refusal(journal, topic, bounds.next + 5).bounds == bounds


def _refusal(journal: Journal, topic: str, wanted: int) -> OffsetOutOfRange:
    with (
        pytest.raises(OffsetOutOfRange, match=topic) as refused,
        journal.reader(topic, wanted) as reader,
    ):
        read_until(reader, 1)
    assert refused.value.wanted == wanted
    return refused.value


def test_r2_reading_at_the_end_waits_for_what_comes(journal: Journal, topic: str) -> None:
    append_all(journal, topic, _numbers(3))
    with journal.reader(topic, journal.bounds(topic).next) as reader:
        assert list(reader.poll(0.0)) == []
        append_all(journal, topic, [b"new"])
        assert read_until(reader, 1)[0].value == b"new"


def test_a_waiting_reader_is_woken_by_an_append(
    journal: Journal, topic: str, opener: JournalOpener
) -> None:
    other = opener.open()
    with journal.reader(topic, LogEnd.NEXT) as reader:
        timer = threading.Timer(0.2, lambda: other.append(topic, Outgoing(b"wake")))
        timer.start()
        records = list(reader.poll(DEADLINE_S))
        timer.join()
    assert [record.value for record in records] == [b"wake"]


def test_seek_moves_forward_and_back(journal: Journal, topic: str) -> None:
    places = append_all(journal, topic, _numbers(10))
    with journal.reader(topic, LogEnd.OLDEST) as reader:
        read_until(reader, 10)
        for start, expected in ((places[4].offset, b"4"), (LogEnd.OLDEST, b"0"), (Since(0), b"0")):
            reader.seek(start)
            assert read_until(reader, 1)[0].value == expected
        reader.seek(LogEnd.NEXT)
        append_all(journal, topic, [b"new"])
        assert read_until(reader, 1)[0].value == b"new"


def test_a_poll_stops_at_its_number_of_records(journal: Journal, topic: str) -> None:
    append_all(journal, topic, _numbers(25))
    with journal.reader(topic, LogEnd.OLDEST) as reader:
        polls = list(_polls(reader, 25, max_records=10))
    assert max(map(len, polls)) <= 10
    assert [value for poll in polls for value in poll] == _numbers(25)


def test_r30_a_poll_stops_at_its_number_of_bytes(journal: Journal, topic: str) -> None:
    values = [bytes([number]) * 3000 for number in range(20)]
    append_all(journal, topic, values)
    with journal.reader(topic, LogEnd.OLDEST) as reader:
        polls = list(_polls(reader, 20, max_bytes=10_000))
    assert max(sum(map(len, poll)) for poll in polls) <= 10_000
    assert [value for poll in polls for value in poll] == values


def test_a_record_larger_than_the_bytes_of_a_poll_comes_alone(journal: Journal, topic: str) -> None:
    values = [b"a", b"B" * 50_000, b"c"]
    append_all(journal, topic, values)
    with journal.reader(topic, LogEnd.OLDEST) as reader:
        polls = list(_polls(reader, 3, max_bytes=100))
    assert [b"B" * 50_000] in polls
    assert [value for poll in polls for value in poll] == values


def _polls(reader: Reader, count: int, **limits: int) -> Iterator[list[bytes]]:
    deadline = time.monotonic() + DEADLINE_S
    while count > 0:
        assert time.monotonic() < deadline
        values = [record.value for record in polled(reader, **limits)]
        if values:
            yield values
        count -= len(values)


def test_r17_a_reader_without_values_has_everything_else(journal: Journal, topic: str) -> None:
    headers = {"entry": b"\x08\x01"}
    futures = [journal.append(topic, Outgoing(b"x" * 4000, headers, "k")) for _ in range(5)]
    offsets = [future.result(DEADLINE_S).offset for future in futures]
    with journal.reader(topic, LogEnd.OLDEST, values=False) as reader:
        records = read_until(reader, 5, max_bytes=100_000)
    assert [record.offset for record in records] == offsets
    assert {record.value for record in records} == {b""}
    assert all(record.headers == headers and record.key == "k" for record in records)


def test_a_reader_of_all_partitions_sees_each_in_order(journal: Journal) -> None:
    topic = create(journal, partitions=3)
    keys = [str(number) for number in range(12)]
    for round_ in range(10):
        for key in keys:
            journal.append(topic, Outgoing(f"{key}:{round_}".encode(), key=key))
    with journal.reader(topic, LogEnd.OLDEST) as reader:
        records = read_until(reader, 120, max_records=7)
    for key in keys:
        own = [record.value.decode() for record in records if record.key == key]
        assert own == [f"{key}:{round_}" for round_ in range(10)]
    for number in range(3):
        offsets = [record.offset for record in records if record.partition == number]
        assert offsets == sorted(set(offsets))


def test_a_busy_partition_does_not_hide_the_others(journal: Journal) -> None:
    topic = create(journal, partitions=2)
    keys = {journal.partition_of(topic, str(number)): str(number) for number in range(20)}
    append_all(journal, topic, _numbers(300), key=keys[0])
    append_all(journal, topic, _numbers(300), key=keys[1])
    with journal.reader(topic, LogEnd.OLDEST) as reader:
        records = read_until(reader, 200, max_records=50)
    counts = Counter(record.partition for record in records[:200])
    assert min(counts[0], counts[1]) >= 50


def test_a_reader_of_one_partition_sees_only_that(journal: Journal) -> None:
    topic = create(journal, partitions=3)
    for number in range(60):
        journal.append(topic, Outgoing(b"x", key=str(number))).result(DEADLINE_S)
    bounds = journal.bounds(topic, 2)
    with journal.reader(topic, LogEnd.OLDEST, partition=2) as reader:
        records = read_until(reader, bounds.next - bounds.oldest)
    assert {record.partition for record in records} == {2}


def test_a_reader_starts_each_partition_at_its_own_place(journal: Journal) -> None:
    topic = create(journal, partitions=2)
    keys = {journal.partition_of(topic, str(number)): str(number) for number in range(20)}
    for number in (0, 1):
        append_all(journal, topic, _numbers(5), key=keys[number])
    with journal.reader(topic, {0: journal.bounds(topic, 0).oldest + 3}) as reader:
        records = read_until(reader, 7)
    assert Counter(record.partition for record in records) == {0: 2, 1: 5}


def test_reading_a_topic_that_is_missing_says_so(journal: Journal) -> None:
    missing = fresh_name()
    with (
        pytest.raises(TopicMissing, match=missing),
        journal.reader(missing, LogEnd.OLDEST) as reader,
    ):
        reader.poll(1.0)
    with pytest.raises(TopicMissing, match=missing):
        journal.bounds(missing)


def test_a_megabyte_a_record_comes_back_unchanged(journal: Journal, topic: str) -> None:
    values = [bytes([number]) * (1024 * 1024) for number in range(20)]
    append_all(journal, topic, values)
    with journal.reader(topic, LogEnd.OLDEST) as reader:
        polls = list(_polls(reader, 20))
    assert [value for poll in polls for value in poll] == values
    assert max(map(len, polls)) <= 8


def test_a_waiting_poll_can_be_woken(journal: Journal, topic: str) -> None:
    with journal.reader(topic, LogEnd.NEXT) as reader:
        reader.wake()
        assert list(reader.poll(10 * DEADLINE_S)) == []
        waiting = threading.Thread(target=reader.poll, args=(10 * DEADLINE_S,))
        waiting.start()
        reader.wake()
        waiting.join(DEADLINE_S)
        assert not waiting.is_alive()
        append_all(journal, topic, [b"after"])
        assert [record.value for record in read_until(reader, 1)] == [b"after"]
