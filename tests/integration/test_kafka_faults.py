"""The Kafka journal while its broker is killed, paused, or refuses (R1, R3, R26)."""

import threading
import time
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from packhorse.messaging.api import (
    Appended,
    AppendUnknown,
    Journal,
    JournalUnavailable,
    LogEnd,
    NotAppended,
    Outgoing,
    Reader,
    Record,
    RecordTooLarge,
)
from packhorse.messaging.kafka import appending, inquiry
from packhorse.messaging.open import open_journal
from packhorse_services.pipeline.archive import reading
from packhorse_services.pipeline.archive.places import OffsetRange
from tests.harness.depth import at_depth
from tests.harness.journals import DEADLINE_S, append_all, create, everything, polled, read_until
from tests.harness.kafka.broker import RunningKafka
from tests.harness.waiting import eventually
from tests.integration.kafka_limits import lower_largest_batch

pytestmark = pytest.mark.kafka

GIVES_UP_S = 5.0
KILLS = at_depth(2, 1)
MANY = 60
"""So many large records that no client has fetched the last of them with the first."""


@pytest.fixture
def journal(kafka: RunningKafka) -> Iterator[Journal]:
    """A journal that waits longer than a broker takes to start again on a busy machine."""
    journal = open_journal(f"{kafka.url}?delivery.timeout.ms=600000", client_name="faults")
    yield journal
    journal.close()


@pytest.fixture
def impatient(kafka: RunningKafka) -> Iterator[Journal]:
    """A journal that gives up on an append after a second."""
    journal = open_journal(f"{kafka.url}?delivery.timeout.ms=1000", client_name="impatient")
    yield journal
    journal.close()


@dataclass
class Writer:
    """Appends numbers in order until it is stopped, a few at a time in flight."""

    journal: Journal
    topic: str
    futures: list[Future[Appended]] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def finish(self) -> None:
        self.stop.set()
        self._thread.join()
        assert not wait(self.futures, DEADLINE_S).not_done

    def done(self) -> int:
        return sum(future.done() for future in self.futures)

    def _write(self) -> None:
        while not self.stop.is_set():
            group = [self._append() for _ in range(20)]
            wait(group, DEADLINE_S)

    def _append(self) -> Future[Appended]:
        value = str(len(self.futures)).encode()
        self.futures.append(self.journal.append(self.topic, Outgoing(value)))
        return self.futures[-1]


def check_outcomes(futures: list[Future[Appended]], records: list[Record]) -> None:
    """Hold every future to what the log says (R3), and the log to the order of appends (R1)."""
    offsets: dict[int, int] = {}
    for record in records:
        number = int(record.value)
        assert number not in offsets, f"record {number} is in the log twice"
        offsets[number] = record.offset
    for number, future in enumerate(futures):
        error = future.exception()
        if error is None:
            assert offsets.get(number) == future.result().offset
        elif isinstance(error, NotAppended):
            assert number not in offsets
        else:
            assert isinstance(error, AppendUnknown)
    assert list(offsets) == sorted(offsets)


def test_r3_killed_brokers_lose_and_repeat_nothing_and_leave_honest_outcomes(
    kafka: RunningKafka, journal: Journal, impatient: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers, a reader and a task of the archive see the same broker die and come back."""
    monkeypatch.setattr(reading, "_PATIENCE_S", DEADLINE_S)
    monkeypatch.setattr(inquiry, "ANSWER_SECONDS", GIVES_UP_S)
    seen_by = [honest_outcomes(journal, impatient), reader_goes_on(journal), range_is_read(journal)]
    try:
        for _ in range(KILLS):
            for each in seen_by:
                next(each, None)
            kafka.kill()
            for each in seen_by:
                next(each, None)
            kafka.start()
        for each in seen_by:
            assert not list(each), "it saw all kills"
    finally:
        for each in seen_by:
            each.close()


def honest_outcomes(journal: Journal, impatient: Journal) -> Generator[None]:
    """Who waits has each record in the log once; who gives up is told what is not known."""
    patient = Writer(journal, create(journal))
    hasty = Writer(impatient, create(impatient))
    try:
        for _ in range(KILLS):
            until_both_append(patient, hasty)
            given_up = len(hasty.futures)
            yield  # the broker is killed
            eventually(lambda n=given_up: any(map(failed, hasty.futures[n:])), "one is given up")  # type: ignore[misc]
            yield  # it starts again
        until_both_append(patient, hasty)
    finally:  # they would fill the memory with what a closed journal refuses
        for writer in (patient, hasty):
            writer.stop.set()
    for writer in (patient, hasty):
        writer.finish()
        check_outcomes(writer.futures, everything(writer.journal, writer.topic))
    assert all(future.exception() is None for future in patient.futures)
    assert any(isinstance(future.exception(), AppendUnknown) for future in hasty.futures)


def reader_goes_on(journal: Journal) -> Generator[None]:
    """A broker that is away is reported, and a reader goes on by itself when it is back."""
    topic = create(journal)
    append_all(journal, topic, [b"before"])
    with journal.reader(topic, LogEnd.OLDEST) as reader:
        assert [record.value for record in read_until(reader, 1)] == [b"before"]
        yield  # the broker is killed
        with pytest.raises(JournalUnavailable, match="refused"):
            journal.bounds(topic)
        with pytest.raises(JournalUnavailable):
            [reader.poll(1.0) for _ in range(int(DEADLINE_S))]
        yield  # it starts again
        eventually(lambda: bounds_are_back(journal, topic), "bounds")
        append_all(journal, topic, [b"after"])
        seen: list[bytes] = []
        eventually(lambda: bool(poll_into(seen, reader)), "the reader")
        assert seen == [b"after"]


def range_is_read(journal: Journal) -> Generator[None]:
    """A task of the archive waits for the rest of its range."""
    topic = create(journal)
    append_all(journal, topic, [b"x" * 900_000] * MANY)
    batches = reading.read_batches(journal, OffsetRange(topic, 0, 0, MANY), "identity")
    found = next(batches).num_rows
    assert 0 < found < MANY, "some are left for after the fault"
    yield  # the broker is killed
    with ThreadPoolExecutor(1) as elsewhere:
        rest = elsewhere.submit(lambda: sum(batch.num_rows for batch in batches))
        yield  # it starts again
        assert found + rest.result() == MANY


def until_both_append(*writers: Writer) -> None:
    begun = [len(writer.futures) for writer in writers]
    for writer, first in zip(writers, begun, strict=True):
        eventually(
            lambda w=writer, n=first: sum(map(succeeded, w.futures[n:])) > 100,  # type: ignore[misc]
            "appends",
        )


def failed(future: Future[Appended]) -> bool:
    return future.done() and future.exception() is not None


def succeeded(future: Future[Appended]) -> bool:
    return future.done() and future.exception() is None


def bounds_are_back(journal: Journal, topic: str) -> bool:
    try:
        return journal.bounds(topic).next == 1
    except JournalUnavailable:
        return False


def poll_into(seen: list[bytes], reader: Reader) -> list[bytes]:
    seen.extend(record.value for record in polled(reader))
    return seen


def test_a_paused_broker_writes_no_gap_into_a_batch(
    kafka: RunningKafka, impatient: Journal
) -> None:
    """Records that wait behind those that were given up must not be written when it goes on."""
    topic = create(impatient)
    eventually(lambda: succeeded_now(impatient, topic), "a connection")
    futures: list[Future[Appended]] = []
    kafka.pause()
    try:
        while not any(map(failed, futures)):
            futures.append(impatient.append(topic, Outgoing(str(len(futures)).encode())))
            time.sleep(0.005)
    finally:
        kafka.resume()
    assert not wait(futures, DEADLINE_S).not_done
    eventually(lambda: succeeded_now(impatient, topic), "appends after the pause")
    written = [record for record in everything(impatient, topic) if record.value]
    check_outcomes(futures, written)
    assert [int(record.value) for record in written] == list(range(len(written)))


def succeeded_now(journal: Journal, topic: str) -> bool:
    return journal.append(topic, Outgoing(b"")).exception(DEADLINE_S) is None


def test_a_producer_that_can_not_go_on_is_replaced(
    kafka: RunningKafka, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = create(journal)
    append_all(journal, topic, [b"known to accept a megabyte"])
    lower_largest_batch(kafka, topic)
    with monkeypatch.context() as paused:
        paused.setattr(appending, "_PAUSE_SECONDS", DEADLINE_S)
        with pytest.raises(RecordTooLarge):
            journal.append(topic, Outgoing(b"x" * 400_000)).result(DEADLINE_S)
        with pytest.raises(NotAppended):
            journal.append(topic, Outgoing(b"")).result(DEADLINE_S)
    eventually(lambda: succeeded_now(journal, topic), "appends over a new producer")
    with pytest.raises(RecordTooLarge, match="more than the"):  # known without asking the broker
        journal.append(topic, Outgoing(b"x" * 400_000)).result(DEADLINE_S)
    lengths = [len(record.value) for record in everything(journal, topic)]
    assert [length for length in lengths if length < 400_000] == [26, 0]


def test_r32_a_damaged_record_is_given_as_such_at_its_offset(
    kafka: RunningKafka, journal: Journal
) -> None:
    topic = create(journal)
    for value in (b"sound", b"to be damaged", b"behind it"):
        append_all(journal, topic, [value])  # a batch each
    flip_a_bit(kafka.home / "data" / f"{topic}-0", b"to be damaged")
    seen: list[Record] = []
    with journal.reader(topic, 0) as reader:
        while len(seen) < 3:
            seen += polled(reader)  # damage is asked for twice before it is believed
    assert [record.offset for record in seen] == [0, 1, 2]
    assert [record.value for record in seen] == [b"sound", b"", b"behind it"]
    assert [bool(record.damage) for record in seen] == [False, True, False]
    found = journal.read_at(topic, 1)
    assert found is not None
    assert found.damage
    assert journal.read_at(topic, 2) is not None


def flip_a_bit(partition: Path, content: bytes) -> None:
    """Do it below the broker, which hands out what is in the file and looks at no checksum."""
    [segment] = partition.glob("*.log")
    with segment.open("r+b") as file:
        file.seek(file.read().index(content))
        file.write(bytes([content[0] ^ 1]))


def test_opening_needs_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inquiry, "ANSWER_SECONDS", GIVES_UP_S)
    away = open_journal("kafka://127.0.0.1:1?delivery.timeout.ms=500", client_name="away")
    with pytest.raises(NotAppended, match="refused"):
        away.append("any", Outgoing(b"x")).result(DEADLINE_S)
    away.close()
