"""A feed of packages on the journal in memory, and one worker on a database of its own."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from packhorse.blobs.open import open_blobs
from packhorse.messaging.open import open_journal
from packhorse.wire.topics import Topics
from tests.harness.borrowing import borrowed
from tests.harness.feed import Feed
from tests.harness.postgres import Databases, end_sessions
from tests.harness.processes import Programs, running_programs
from tests.harness.subscriber import Worker

Workers = Callable[..., Worker]


_FULL = (
    *("lease", "position", "attempt", "status", "status_mark", "clear_command"),
    *("command_position", "applied_sequence", "applied_package", "subscription_control"),
    *("command_status", "audit", "joined_snapshot", "content_filter"),
)
_EMPTY = (
    *(f"DELETE FROM bookkeeping.{table}" for table in _FULL),  # TRUNCATE makes files: 11 ms
    "DELETE FROM content.node WHERE path <> '/'",
)


@pytest.fixture(scope="session")
def shared_database(lasting_databases: Databases) -> str:
    """One database for this folder: emptying it is far quicker than copying the template."""
    return lasting_databases.new("subscriber")


@pytest.fixture
def database_url(shared_database: str) -> str:
    """An empty database that the test has to itself."""
    empty(shared_database)
    return shared_database


def empty(url: str) -> None:
    """End every session of a subscriber's database and forget all it holds."""
    with borrowed(url) as connection:
        end_sessions(connection)
        connection.execute(";".join(_EMPTY).encode())


@pytest.fixture
def journal_url() -> str:
    """A journal of the test's own, in memory unless a module says otherwise."""
    return f"memory://{uuid.uuid4()}"


@pytest.fixture
def feed(tmp_path: Path, journal_url: str) -> Iterator[Feed]:
    journal = open_journal(journal_url, client_name="tests")
    with closing(open_blobs(str(tmp_path / "blobs"))) as blobs:
        yield Feed(journal, blobs)
    journal.close()


@pytest.fixture(params=["sql", pytest.param("kafka", marks=pytest.mark.kafka)])
def real_feed(
    request: pytest.FixtureRequest, databases: Databases, tmp_path: Path
) -> Iterator[Feed]:
    """A feed on a real journal, with topics of its own."""
    if request.param == "sql":
        url = databases.new("journal")
    else:
        url = request.getfixturevalue("kafka").url
    journal = open_journal(url, client_name="tests")
    topics = Topics.named(f"t{uuid.uuid4().hex[:8]}", {})
    with closing(open_blobs(str(tmp_path / "blobs"))) as blobs:
        yield Feed(journal, blobs, topics=topics, journal_url=url)
    journal.close()


@pytest.fixture
def workers(feed: Feed, database_url: str) -> Iterator[Workers]:
    """Makes workers, on the test's database by default, and ends them."""
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


@pytest.fixture
def programs(databases: Databases) -> Iterator[Programs]:
    """Programs on a journal of their own."""
    with running_programs(databases.new("journal")) as made:
        yield made


@pytest.fixture
def journal_feed(programs: Programs) -> Iterator[Feed]:
    """A feed into that journal."""
    settings = programs._settings
    journal = open_journal(str(settings["journal_url"]), client_name="tests")
    yield Feed(journal, open_blobs(str(settings["blobs_url"])))
    journal.close()
