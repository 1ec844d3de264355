"""Ranges of Kafka's log as tasks of the archive read them: markers, and a broker that restarts."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Producer

from packhorse.messaging.api import Journal
from packhorse.messaging.open import open_journal
from packhorse_services.pipeline.archive.places import Range
from packhorse_services.pipeline.archive.reading import read_batches
from tests.harness.journals import DEADLINE_S, append_all, create
from tests.harness.kafka.broker import RunningKafka

pytestmark = pytest.mark.kafka

LARGE = 900_000
"""So many bytes that no client has fetched the last of `MANY` records with the first."""
MANY = 60


@pytest.fixture
def journal(kafka: RunningKafka) -> Iterator[Journal]:
    journal = open_journal(kafka.url, client_name="integration")
    yield journal
    journal.close()


def offsets(journal: Journal, topic: str, start: int, end: int) -> list[int]:
    return [
        offset
        for batch in read_batches(journal, Range(topic, 0, start, end), "identity")
        for offset in batch.column("offset").to_pylist()
    ]


def commit_foreign(kafka: RunningKafka, topic: str) -> None:
    """Append one record of somebody's transaction, and the marker of its commit behind it."""
    foreign = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    foreign.init_transactions(DEADLINE_S)
    foreign.begin_transaction()
    foreign.produce(topic, b"foreign", partition=0)
    foreign.commit_transaction(DEADLINE_S)


def test_r1_a_range_may_end_with_a_marker(kafka: RunningKafka, journal: Journal) -> None:
    topic = create(journal)
    commit_foreign(kafka, topic)
    commit_foreign(kafka, topic)
    append_all(journal, topic, [b"ours"])
    assert offsets(journal, topic, 0, 2) == [0]
    assert offsets(journal, topic, 1, 2) == []
    assert offsets(journal, topic, 1, 5) == [2, 4]
    commit_foreign(kafka, topic)
    assert offsets(journal, topic, 4, 7) == [4, 5]


def test_a_restart_of_the_broker_is_waited_for(kafka: RunningKafka, journal: Journal) -> None:
    topic = create(journal)
    append_all(journal, topic, [b"x" * LARGE] * MANY)
    batches = read_batches(journal, Range(topic, 0, 0, MANY), "identity")
    found = next(batches).num_rows
    kafka.kill()
    with ThreadPoolExecutor(1) as elsewhere:
        rest = elsewhere.submit(lambda: sum(batch.num_rows for batch in batches))
        kafka.start()  # by this thread: with the one that starts it a broker ends
    assert found + rest.result() == MANY
