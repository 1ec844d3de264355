"""What the recorder of statuses stores with a failure, and what that may cost (R18, R30)."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from psycopg import Connection
from psycopg.pq import TransactionStatus

from packhorse.db.connect import connect
from packhorse.messaging.api import Journal, Outgoing, Record
from packhorse.messaging.open import open_journal
from packhorse.messaging.topics import standard_topics
from packhorse.wire.codec import encode_status
from packhorse.wire.messages import Action, PackageEntry, PackageMessage, Status, StatusMessage
from packhorse.wire.package_codec import encode_package
from packhorse_services.publisher.commands.command_rows import note_status
from packhorse_services.publisher.outcomes.recorder import Recorder
from packhorse_services.publisher.outcomes.recorder_lock import RecorderLock
from tests.harness.publishing import AGENT, TOPICS

FAILURES = 60


class Watched:
    """A journal that notes whether a transaction was open at each lookup."""

    def __init__(self, journal: Journal, connection: Connection) -> None:
        self._journal, self._connection = journal, connection
        self.lookups: list[TransactionStatus] = []

    def read_at(self, topic: str, offset: int, partition: int = 0) -> Record | None:
        self.lookups.append(self._connection.info.transaction_status)
        return self._journal.read_at(topic, offset, partition)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    lock = RecorderLock(AGENT, partial(connect, database_url, "tests", autocommit=True))
    connection = lock.acquire()
    assert connection is not None
    yield connection
    lock.release()


def test_r18_lookups_of_failed_packages_are_few_and_outside_of_the_transaction(
    connection: Connection, tmp_path: Path
) -> None:
    journal = open_journal(f"memory://{tmp_path}", client_name="tests")
    journal.create_topics(standard_topics(TOPICS))
    packages = journal.identity(TOPICS.package)
    for number in range(FAILURES):
        entry = PackageEntry(f"p{number}", AGENT, Action.ADD, (f"/p{number}",))
        package = encode_package(PackageMessage(entry))
        journal.append(TOPICS.package, Outgoing(package.value, package.headers)).result()
        name = f"p{number}"
        reported = StatusMessage("sub1", AGENT, packages, number, Status.REMOVED_FAILED, name)
        status = encode_status(reported)
        journal.append(TOPICS.status, Outgoing(status.value, status.headers)).result()
    watched: Any = Watched(journal, connection)
    recorder = Recorder(watched, TOPICS, AGENT, note_status)
    assert recorder.record(connection).offset == FAILURES
    recorder.close()
    stored = connection.execute(
        "SELECT count(*), count(entry) FROM bookkeeping.outcome WHERE agent = %s", (AGENT,)
    ).fetchone()
    assert stored is not None
    assert stored[0] == FAILURES
    assert 0 < stored[1] == len(watched.lookups) < FAILURES
    assert set(watched.lookups) == {TransactionStatus.IDLE}
