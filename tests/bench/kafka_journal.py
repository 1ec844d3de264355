"""What the Kafka journal costs over librdkafka alone: appends, reads, and the way through both.

    python -m tests.bench.kafka_journal [RECORDS]

Prints one JSON line a measurement. Throughput is measured in turns with its anchor, the bare
client doing the same with the same settings, and the medians of the rounds are compared.
"""

import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from confluent_kafka import Consumer, Producer, TopicPartition

from packhorse.messaging.api import Appended, Journal, LogEnd, Outgoing
from packhorse.messaging.open import open_journal
from tests.bench.journal_append import latencies
from tests.bench.reporting import emit
from tests.harness.footprint import processor_s
from tests.harness.journals import create
from tests.harness.kafka.broker import RunningKafka, running_kafka

_ROUNDS = 5
_IN_FLIGHT = 2_000
_VALUE = os.urandom(5_000)
_HEADERS = {"message-type": b"PackageMessage", "message-version": b"1"}


def main() -> None:
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    with running_kafka() as broker:
        journal = open_journal(broker.url, client_name="bench")
        latencies(journal)
        topic = create(journal)
        compare(
            "append_5kb",
            records,
            broker,
            lambda: append(journal, topic, records),
            lambda: append_bare(broker, topic, records),
        )
        compare(
            "read_5kb",
            records,
            broker,
            lambda: read(journal, topic, records),
            lambda: read_bare(broker, topic, records),
        )
        journal.close()


def append(journal: Journal, topic: str, records: int) -> None:
    room = threading.Semaphore(_IN_FLIGHT)
    last: Future[Appended] | None = None
    for _ in range(records):
        room.acquire()
        last = journal.append(topic, Outgoing(_VALUE, _HEADERS))
        last.add_done_callback(lambda _: room.release())
    assert last is not None
    last.result()


def append_bare(broker: RunningKafka, topic: str, records: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 1,
            "batch.size": 256 * 1024,
        }
    )
    for _ in range(records):
        while len(producer) >= _IN_FLIGHT:
            producer.poll(0.01)
        producer.produce(topic, _VALUE, partition=0, headers=dict(_HEADERS))
    producer.flush()


def read(journal: Journal, topic: str, records: int) -> None:
    with journal.reader(topic, LogEnd.OLDEST) as reader:
        while records > 0:
            records -= len(reader.poll(10.0))


def read_bare(broker: RunningKafka, topic: str, records: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "bench"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    while records > 0:
        records -= len(consumer.consume(500, 0.1))
    consumer.close()


def compare(
    name: str,
    records: int,
    broker: RunningKafka,
    ours: Callable[[], None],
    anchor: Callable[[], None],
) -> None:
    rounds = [
        (measured(records, broker, ours), measured(records, broker, anchor)) for _ in range(_ROUNDS)
    ]
    (rate, cpu, broker_cpu), (bare_rate, bare_cpu, _) = (
        [statistics.median(figures) for figures in zip(*side, strict=True)]
        for side in zip(*rounds, strict=True)
    )
    emit(
        name,
        rate,
        "records/s",
        anchor=("the bare client", bare_rate),
        cpu_us=cpu,
        anchor_cpu_us=bare_cpu,
        broker_cpu_us=broker_cpu,
    )


def measured(
    records: int, broker: RunningKafka, action: Callable[[], None]
) -> tuple[float, float, float]:
    """Return records a second, our CPU and the broker's, in microseconds a record."""
    start, own, foreign = time.perf_counter(), time.process_time(), processor_s(broker.pid)
    action()
    seconds = time.perf_counter() - start
    used = (time.process_time() - own, processor_s(broker.pid) - foreign)
    return records / seconds, used[0] / records * 1e6, used[1] / records * 1e6


if __name__ == "__main__":
    main()
