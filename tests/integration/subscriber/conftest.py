"""A feed of packages on the journal in memory, and one worker on a database of its own."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from packhorse.blobs.open import open_blobs
from packhorse.messaging.open import open_journal
from tests.harness.subscriber import Feed, Worker

Workers = Callable[..., Worker]


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    journal = open_journal(f"memory://{uuid.uuid4()}", client_name="tests")
    return Feed(journal, open_blobs(str(tmp_path / "blobs")))


@pytest.fixture
def workers(feed: Feed, database_url: str) -> Iterator[Workers]:
    """Makes workers, on the test's database unless told otherwise, and ends them."""
    made: list[Worker] = []

    def make(url: str = database_url, **options: Any) -> Worker:
        made.append(Worker(url, options.pop("journal", feed.journal), feed.blobs, **options))
        return made[-1]

    yield make
    for worker in made:
        worker.die()


@pytest.fixture
def worker(workers: Workers) -> Worker:
    return workers()
