"""R5, R26: what a process had sent when it was killed is waited for before it is sent again."""

import functools
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from packhorse.blobs.open import open_blobs
from packhorse.messaging.api import Appended, Bounds, Journal, Outgoing
from packhorse.messaging.deduplicated import DeduplicatedLog
from packhorse.messaging.open import open_journal
from packhorse.messaging.sql import journal as sql_journal
from tests.harness.crash import Crash
from tests.harness.deduplication import MemorySnapshots, numbered, numbers_in
from tests.harness.journals import DEADLINE_S, PATIENT, create
from tests.harness.postgres import Databases
from tests.harness.publishing import Author, JournalDouble, page, publish, request
from tests.harness.waiting import eventually

_GATE = 0x67617465  # "gate"
_AT_COMMIT = """
    CREATE FUNCTION journal.wait_at_gate() RETURNS trigger LANGUAGE plpgsql
    SET lock_timeout = 0 AS
    $$ BEGIN PERFORM pg_advisory_xact_lock_shared(%s); RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER gate AFTER UPDATE OF next ON journal.partition
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION journal.wait_at_gate()
"""


class Gate:
    """Closed: commits that append wait at it. `open` lets them through."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    def wait_for(self, sessions: int) -> None:
        """Wait until so many sessions of the journal wait: at the gate, or for one that does."""
        eventually(lambda: self._waiting() >= sessions, f"{sessions} sessions at the gate")

    def open(self) -> None:
        """Let all commits through."""
        self._connection.execute("SELECT pg_advisory_unlock(%s)", (_GATE,))

    def _waiting(self) -> int:
        row = self._connection.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND wait_event_type = 'Lock'"
        ).fetchone()
        assert row is not None
        return int(row[0])


@contextmanager
def closed_gate(journal_url: str) -> Iterator[Gate]:
    """Put a gate before the commits of a SQL journal."""
    with psycopg.connect(journal_url, autocommit=True) as connection:
        connection.execute(_AT_COMMIT.replace("%s", str(_GATE)).encode())
        connection.execute("SELECT pg_advisory_lock(%s)", (_GATE,))
        yield Gate(connection)


class KilledWithAnAppendOnItsWay(JournalDouble):
    """Sends the record, and the process dies before the answer."""

    def append(self, topic: str, record: Outgoing) -> Future[Appended]:
        self._journal.append(topic, record)
        raise Crash


class KilledBeforeItSends(JournalDouble):
    """Loses the lock with its session when it is about to send; `resume` sends nevertheless."""

    def append(self, topic: str, record: Outgoing) -> Future[Appended]:
        self.resume = functools.partial(self._journal.append, topic, record)
        raise Crash


class Overtaken(JournalDouble):
    """A journal to which an earlier holder of the lock appends just before this one does."""

    def __init__(self, journal: Journal, earlier: KilledBeforeItSends) -> None:
        super().__init__(journal)
        self._earlier = earlier

    def append(self, topic: str, record: Outgoing) -> Future[Appended]:
        self._earlier.resume().result(DEADLINE_S)
        return self._journal.append(topic, record)


class Hasty(JournalDouble):
    """A journal that returns its bounds while appends are under way."""

    def bounds(self, topic: str, partition: int = 0, *, after_appends: bool = False) -> Bounds:
        return self._journal.bounds(topic, partition)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_journal, "APPENDER_TIMEOUTS", PATIENT)


@pytest.fixture
def journal_url(databases: Databases) -> str:
    return databases.new("journal")


@pytest.fixture
def journal(journal_url: str) -> Iterator[Journal]:
    journal = open_journal(journal_url, client_name="survivor")
    yield journal
    journal.close()


@pytest.fixture
def victim(journal_url: str) -> Iterator[Journal]:
    """The journal as the process sees it that will be killed."""
    journal = open_journal(journal_url, client_name="victim")
    yield journal
    journal.close()


@pytest.fixture
def author(database_url: str, journal: Journal, tmp_path: Path) -> Iterator[Author]:
    author = Author(database_url, journal, open_blobs(str(tmp_path / "blobs")))
    author.write(page("/p0"))
    yield author
    author.close()


def die(author: Author, journal: Journal) -> None:
    replica = author.replica(journal=journal)
    with pytest.raises(Crash):
        publish(replica, request("/p0", key="once"))
    replica.close()


def test_r5_the_next_holder_of_the_lock_waits_for_the_commit_of_one_that_was_killed(
    journal_url: str, author: Author, victim: Journal
) -> None:
    assert published_by_two(journal_url, author, victim, author.journal) == ["/p0"]


@pytest.mark.proof
def test_r5_the_checker_catches_one_that_does_not_wait(
    journal_url: str, author: Author, victim: Journal
) -> None:
    hasty = Hasty(author.journal)
    assert published_by_two(journal_url, author, victim, hasty) == ["/p0", "/p0"]


def published_by_two(
    journal_url: str, author: Author, victim: Journal, journal: Journal
) -> list[str]:
    """Return the paths in the journal after one was killed and another took over."""
    survivor = author.replica(journal=journal)
    with closed_gate(journal_url) as gate, ThreadPoolExecutor() as threads:
        die(author, KilledWithAnAppendOnItsWay(victim))
        gate.wait_for(1)
        settled = threads.submit(survivor.reconcile)
        gate.wait_for(2)
        gate.open()
        assert settled.result(DEADLINE_S)
    return [path for placed in author.journaled() for path in placed.message.entry.paths]


def test_r5_the_first_place_is_answered_when_an_earlier_holder_of_the_lock_appends_late(
    author: Author, victim: Journal
) -> None:
    earlier = KilledBeforeItSends(victim)
    die(author, earlier)
    survivor = author.replica(journal=Overtaken(author.journal, earlier))
    assert survivor.reconcile()
    first, repeated = author.journaled()
    assert first.number == repeated.number
    [answered] = publish(survivor, request("/p0", key="once"))
    assert answered.future.result(DEADLINE_S).offset == first.offset


def test_r5_a_deduplicated_log_waits_for_what_an_earlier_owner_had_sent(
    journal_url: str, journal: Journal, victim: Journal
) -> None:
    topic = create(journal)
    store = MemorySnapshots()
    first = DeduplicatedLog(KilledWithAnAppendOnItsWay(victim), topic, store, name="owner")
    second = DeduplicatedLog(journal, topic, store, name="owner")
    with closed_gate(journal_url) as gate, ThreadPoolExecutor() as threads:
        with pytest.raises(Crash):
            first.append(numbered("source", 1))
        gate.wait_for(1)
        answer = threads.submit(second.append, numbered("source", 1, epoch=2))
        gate.wait_for(2)
        gate.open()
        assert answer.result(DEADLINE_S).duplicate
    assert [number.sequence for number in numbers_in(journal, topic)] == [1]
