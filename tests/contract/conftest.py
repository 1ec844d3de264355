"""Backends of the ports; each contract suite runs on all backends of its port."""

from collections.abc import Iterator

import pytest

from packhorse.messaging.api import Journal
from packhorse.messaging.sql.segments import SegmentLimits
from tests.harness.journals import (
    JournalBackend,
    JournalOpener,
    KafkaBackend,
    MemoryBackend,
    SqlBackend,
    create,
)
from tests.harness.kafka.broker import RunningKafka
from tests.harness.postgres import Databases

JOURNALS = ["memory", "sql", "tiny_segments", pytest.param("kafka", marks=pytest.mark.kafka)]


@pytest.fixture(scope="session")
def memory_backend() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture(scope="session")
def sql_backend(lasting_databases: Databases) -> SqlBackend:
    return SqlBackend(lasting_databases.new("journal"))


@pytest.fixture(scope="session")
def tiny_segments_backend(sql_backend: SqlBackend) -> SqlBackend:
    return SqlBackend(sql_backend.url, SegmentLimits(bytes=20_000, records=5))


@pytest.fixture(scope="session")
def kafka_backend(kafka: RunningKafka) -> KafkaBackend:
    return KafkaBackend(kafka.url)


@pytest.fixture(params=JOURNALS)
def journal_backend(request: pytest.FixtureRequest) -> JournalBackend:
    """Each journal in turn: `<name>_backend` is asked for only by the tests that run on it."""
    backend: JournalBackend = request.getfixturevalue(f"{request.param}_backend")
    return backend


@pytest.fixture
def opener(journal_backend: JournalBackend) -> Iterator[JournalOpener]:
    """Opens journals and closes them after the test."""
    opener = JournalOpener(journal_backend)
    yield opener
    opener.close()


@pytest.fixture
def journal(opener: JournalOpener) -> Journal:
    return opener.open()


@pytest.fixture
def topic(journal: Journal) -> str:
    """A fresh topic of one partition."""
    return create(journal)
