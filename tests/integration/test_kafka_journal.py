"""What only Kafka does to a journal: topics made anew, transactions, settings, fetching ahead."""

import ctypes
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from packhorse.messaging.api import (
    Bounds,
    Journal,
    LogEnd,
    OffsetOutOfRange,
    Outgoing,
    Reader,
    Record,
    RecordTooLarge,
    TopicMissing,
    TopicSpec,
)
from packhorse.messaging.kafka import reading
from packhorse.messaging.kafka.records import as_record
from packhorse.messaging.open import open_journal
from packhorse.messaging.reading import read_range
from packhorse_services.cleanup.sweep import last_offsets
from tests.harness.journals import (
    DEADLINE_S,
    KafkaBackend,
    append_all,
    create,
    fresh_name,
    polled,
    read_until,
)
from tests.harness.kafka.broker import RunningKafka
from tests.harness.waiting import eventually

pytestmark = pytest.mark.kafka


@pytest.fixture
def journal(kafka: RunningKafka) -> Iterator[Journal]:
    journal = open_journal(kafka.url, client_name="integration")
    yield journal
    journal.close()


def test_r2_records_deleted_under_a_reader_that_fetched_ahead(journal: Journal) -> None:
    topic = create(journal)
    append_all(journal, topic, [bytes([number]) * 1_000_000 for number in range(60)])
    with journal.reader(topic, LogEnd.OLDEST) as reader:
        seen = [record.value[0] for record in read_until(reader, 1, max_records=1)]
        journal.truncate(topic, 60)
        append_all(journal, topic, [b"\xff"])
        with pytest.raises(OffsetOutOfRange) as reported:
            read_on(reader, seen)
    assert seen == list(range(reported.value.wanted))
    assert reported.value.bounds == Bounds(60, 61)


def read_on(reader: Reader, seen: list[int]) -> None:
    while 0xFF not in seen:
        seen += [record.value[0] for record in polled(reader)]


@pytest.mark.parametrize("records_before", [3, 40])
def test_r24_a_reader_soon_stops_in_a_topic_that_was_created_anew(
    kafka: RunningKafka, journal: Journal, records_before: int
) -> None:
    topic = create(journal)
    append_all(journal, topic, [b"old"] * records_before)
    with journal.reader(topic, LogEnd.OLDEST) as reader:
        read_until(reader, records_before)
        KafkaBackend(kafka.url).remove_topic(topic)
        other = open_journal(kafka.url, client_name="other")
        eventually(lambda: created_anew(other, topic), "the topic's second life")
        append_all(other, topic, [b"new"] * 20)
        other.close()
        with pytest.raises(TopicMissing, match="topic"):
            read_on(reader, [])  # asked once a second: what came before is not taken back


def created_anew(journal: Journal, topic: str) -> bool:
    journal.create_topics([TopicSpec(topic)])
    return journal.bounds(topic).next == 0


def commit_foreign_transaction(kafka: RunningKafka, journal: Journal, topic: str) -> None:
    """Leave a foreign record in an empty topic, and behind it the commit's own."""
    foreign = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    foreign.init_transactions(DEADLINE_S)
    foreign.begin_transaction()
    foreign.produce(topic, b"foreign", partition=0)
    foreign.commit_transaction(DEADLINE_S)
    eventually(lambda: journal.bounds(topic) == Bounds(0, 2), "the commit's own record")


def test_r2_a_log_that_ends_with_a_transaction_has_an_end(
    kafka: RunningKafka, journal: Journal
) -> None:
    topic = create(journal)
    commit_foreign_transaction(kafka, journal, topic)
    with journal.reader(topic, LogEnd.OLDEST) as reader:
        read_until(reader, 1)
        eventually(lambda: (polled(reader, 0.1), reader.position())[1] == 2, "the log's end")
        append_all(journal, topic, [b"ours"])
        assert [record.offset for record in read_until(reader, 1)] == [2]
    other = create(journal)
    commit_foreign_transaction(kafka, journal, other)
    assert [record.offset for record in read_range(journal, other, 0, 2)] == [0]
    assert last_offsets(journal, other, Bounds(0, 2), {"id"}, lambda: None) == {}


def test_r1_offsets_that_a_transaction_used_up_are_gaps(
    kafka: RunningKafka, journal: Journal
) -> None:
    topic = create(journal)
    commit_foreign_transaction(kafka, journal, topic)
    assert journal.read_at(topic, 1) is None
    append_all(journal, topic, [b"ours"])
    with journal.reader(topic, LogEnd.OLDEST) as reader:
        assert [record.offset for record in read_until(reader, 2)] == [0, 2]


def test_r1_an_open_transaction_of_somebody_holds_no_reader_up(
    kafka: RunningKafka, journal: Journal
) -> None:
    topic = create(journal)
    foreign = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    foreign.init_transactions(DEADLINE_S)
    foreign.begin_transaction()
    foreign.produce(topic, b"never committed", partition=0)
    foreign.flush(DEADLINE_S)
    append_all(journal, topic, [b"ours"])
    with journal.reader(topic, LogEnd.OLDEST) as reader:
        assert read_until(reader, 2)[-1].value == b"ours"
    foreign.abort_transaction(DEADLINE_S)


def test_a_topic_with_kafkas_own_defaults_is_refused_with_the_reason(
    kafka: RunningKafka, journal: Journal
) -> None:
    name = fresh_name()
    settings = {"cleanup.policy": "compact", "retention.bytes": "1000000"}
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})
    (created,) = client.create_topics([NewTopic(name, 1, 1, config=settings)]).values()
    created.result(DEADLINE_S)
    sentences = journal.check_topics([TopicSpec(name)])
    for setting in (
        "retention.bytes=-1",
        "cleanup.policy=delete",
        "max.message.bytes=1310720",
        "message.timestamp.type=LogAppendTime",
    ):
        [sentence] = [sentence for sentence in sentences if setting in sentence]
        assert name in sentence
        assert "kafka-configs.sh" in sentence
    assert len(sentences) == 4


def test_a_topic_whose_batches_are_too_small_says_what_to_raise(
    kafka: RunningKafka, journal: Journal
) -> None:
    name = fresh_name()
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})
    topic = NewTopic(name, 1, 1, config={"max.message.bytes": "200000"})
    (created,) = client.create_topics([topic]).values()
    created.result(DEADLINE_S)
    refused = journal.append(name, Outgoing(b"")).exception(DEADLINE_S)
    assert isinstance(refused, RecordTooLarge)
    for word in (name, "max.message.bytes less 262144", "`packhorse topics check`"):
        assert word in str(refused)


def test_r28_the_brokers_clock_dates_a_record(kafka: RunningKafka, journal: Journal) -> None:
    topic = create(journal)
    foreign = Producer({"bootstrap.servers": kafka.bootstrap})
    foreign.produce(topic, b"from 1970", partition=0, timestamp=1)
    foreign.flush(DEADLINE_S)
    append_all(journal, topic, [b"now"])
    first, second = (journal.read_at(topic, offset) for offset in (0, 1))
    assert first is not None
    assert second is not None
    assert 0 <= second.time_ms - first.time_ms < DEADLINE_S * 1000


def test_r30_foreign_records_are_read_as_they_are(kafka: RunningKafka, journal: Journal) -> None:
    topic = create(journal)
    foreign = Producer({"bootstrap.servers": kafka.bootstrap})
    headers = [("twice", b"1"), ("twice", b"2"), ("none", None)]
    foreign.produce(topic, None, b"\xff\xfe", partition=0, headers=headers)
    foreign.flush(DEADLINE_S)
    record = journal.read_at(topic, 0)
    assert record is not None
    assert (record.value, dict(record.headers)) == (b"", {"twice": b"2", "none": b""})
    assert record.key == "\ufffd\ufffd"


def append_with_a_header_named_ff(kafka: RunningKafka, topic: str) -> None:
    """Call librdkafka itself: the Python client takes no name that is not UTF-8."""
    package = Path(confluent_kafka.__file__).parent
    [path] = package.with_name("confluent_kafka.libs").glob("librdkafka*")
    library, why = ctypes.CDLL(str(path)), ctypes.create_string_buffer(500)
    library.rd_kafka_conf_new.restype = library.rd_kafka_new.restype = ctypes.c_void_p
    conf = ctypes.c_void_p(library.rd_kafka_conf_new())
    library.rd_kafka_conf_set(conf, b"bootstrap.servers", kafka.bootstrap.encode(), why, 500)
    client = ctypes.c_void_p(library.rd_kafka_new(0, conf, why, 500))
    name, value, header, size = 1, 4, 9, ctypes.c_size_t(1)  # kinds of arguments; 0 ends them
    fields = (name, topic.encode(), value, b"v", size, header, b"\xff", b"h", size, 0)
    try:
        assert library.rd_kafka_producev(client, *fields) == 0, why.value
        assert library.rd_kafka_flush(client, int(DEADLINE_S * 1000)) == 0
    finally:
        library.rd_kafka_destroy(client)


def test_r32_a_header_whose_name_is_not_utf_8_makes_a_record_damaged(
    kafka: RunningKafka, journal: Journal
) -> None:
    topic = create(journal)
    append_all(journal, topic, [b"x"] * 99)  # until the interpreter calls what is hot unchecked
    append_with_a_header_named_ff(kafka, topic)
    append_all(journal, topic, [b"behind it"])
    with journal.reader(topic, LogEnd.OLDEST) as reader:
        foreign, ours = read_until(reader, 101)[99:]
    assert "offset 99 of" in foreign.damage
    assert ours.value == b"behind it"
    found = journal.read_at(topic, 99)
    assert found is not None
    assert "UTF-8" in found.damage


def test_r2_a_poll_that_fails_passes_nothing(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = create(journal)
    append_all(journal, topic, [b"x"] * 3)
    failures = [MemoryError()]

    def fails_once(message: Message, *, values: bool) -> Record:
        if failures:
            raise failures.pop()
        return as_record(message, values=values)

    monkeypatch.setattr(reading, "as_record", fails_once)
    with journal.reader(topic, LogEnd.OLDEST) as reader:
        with pytest.raises(MemoryError):
            read_until(reader, 1)
        assert [record.offset for record in read_until(reader, 3)] == [0, 1, 2]


def test_a_batch_fills_no_more_than_a_small_topic_takes(journal: Journal) -> None:
    topic = create(journal, max_record_bytes=1000)
    futures = [journal.append(topic, Outgoing(b"x" * 1000)) for _ in range(3000)]
    assert [future.result(DEADLINE_S).offset for future in futures] == list(range(3000))


def test_closing_answers_every_append(kafka: RunningKafka) -> None:
    journal = open_journal(kafka.url, client_name="closing")
    topic = create(journal)
    futures = [journal.append(topic, Outgoing(b"x" * 5000)) for _ in range(200)]
    journal.close()
    assert [future.result(0).offset for future in futures] == list(range(200))
