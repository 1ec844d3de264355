"""Ranges of a journal as tasks of the archive read them: Kafka's markers, servers that restart."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Producer

from packhorse.messaging.api import Journal
from packhorse.messaging.open import open_journal
from packhorse_services.pipeline.archive import reading
from packhorse_services.pipeline.archive.places import OffsetRange
from packhorse_services.pipeline.archive.reading import read_batches
from tests.harness.journals import DEADLINE_S, append_all, create
from tests.harness.kafka.broker import RunningKafka
from tests.harness.postgres import Databases, running_postgres

pytestmark = pytest.mark.kafka

LARGE = 900_000
"""So many bytes that the last of `MANY` records is not fetched with the first."""
MANY = 20


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_PATIENCE_S", DEADLINE_S)


@pytest.fixture
def journal(kafka: RunningKafka) -> Iterator[Journal]:
    journal = open_journal(kafka.url, client_name="integration")
    yield journal
    journal.close()


def offsets(journal: Journal, topic: str, start: int, end: int) -> list[int]:
    return [
        offset
        for batch in read_batches(journal, OffsetRange(topic, 0, start, end), "identity")
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


def test_a_restart_of_postgres_is_waited_for() -> None:
    """The one of Kafka is waited for in `test_kafka_faults.py`, with all else that it ends."""
    with running_postgres() as server:
        journal = open_journal(Databases(server).new(), client_name="integration")
        topic = create(journal)
        append_all(journal, topic, [b"x" * LARGE] * MANY)
        batches = read_batches(journal, OffsetRange(topic, 0, 0, MANY), "identity")
        found = next(batches).num_rows
        server.stop("immediate")
        with ThreadPoolExecutor(1) as elsewhere:
            rest = elsewhere.submit(lambda: sum(batch.num_rows for batch in batches))
            server.start()
        assert 0 < found < MANY
        assert found + rest.result() == MANY
        journal.close()
