"""An author with a journal, and a source that publishes there."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from packhorse.blobs.open import open_blobs
from packhorse.messaging.open import open_journal
from packhorse.wire.topics import Topics
from tests.harness.kafka.broker import RunningKafka
from tests.harness.postgres import Databases
from tests.harness.producers import Source
from tests.harness.publishing import (
    Author,
    page,
)


@pytest.fixture(params=["memory", "sql"])
def journal_url(request: pytest.FixtureRequest, databases: Databases, tmp_path: Path) -> str:
    match request.param:
        case "sql":
            return databases.new("journal")
        case "kafka":
            broker: RunningKafka = request.getfixturevalue("kafka")
            return broker.url
    return f"memory://{tmp_path}"


@pytest.fixture
def author(database_url: str, journal_url: str, tmp_path: Path) -> Iterator[Author]:
    journal = open_journal(journal_url, client_name="tests")
    topics = Topics.named(f"producers-{time.time_ns()}", {})
    author = Author(database_url, journal, open_blobs(str(tmp_path / "blobs")), topics)
    author.write(*(page(f"/p{number}") for number in range(3)))
    yield author
    author.close()
    journal.close()


@pytest.fixture
def source(author: Author) -> Source:
    source = Source(author)
    source.register()
    return source
