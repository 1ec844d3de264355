"""The gap test on slow commits, and the proof that its checker catches a broken log (R1)."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import psycopg
import pytest

from packhorse.messaging.api import Journal, LogEnd, Outgoing
from packhorse.messaging.open import open_journal
from tests.harness.gaps import SECONDS, race
from tests.harness.journals import DEADLINE_S, create

WRITERS = 8


@contextmanager
def _journals(url: str, count: int) -> Iterator[list[Journal]]:
    journals = [open_journal(url, client_name="gaps") for _ in range(count)]
    try:
        yield journals
    finally:
        for journal in journals:
            journal.close()


def _slow_down_commits(url: str) -> None:
    """Let every append sleep between taking its offsets and its commit."""
    with psycopg.connect(url) as connection:
        connection.execute(
            "CREATE FUNCTION journal.sleep() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN PERFORM pg_sleep(random() * 0.008); RETURN NULL; END $$"
        )
        connection.execute(
            "CREATE TRIGGER sleep AFTER UPDATE OF next ON journal.partition"
            " FOR EACH ROW EXECUTE FUNCTION journal.sleep()"
        )


def test_r1_slow_commits_of_eight_writers_leave_no_gap(database_url: str) -> None:
    _slow_down_commits(database_url)
    with _journals(database_url, WRITERS) as journals:
        topic = create(journals[0])
        writers = [_writer(journal, topic) for journal in journals]
        with journals[0].reader(topic, LogEnd.OLDEST) as reader:
            result = race(writers, lambda _: [record.offset for record in reader.poll(0.2)])
    assert result.missed == set()
    assert result.seen == list(range(len(result.seen)))


def _writer(journal: Journal, topic: str) -> Callable[[], int]:
    return lambda: journal.append(topic, Outgoing(b"x")).result(DEADLINE_S).offset


@pytest.mark.proof
def test_r1_the_checker_catches_a_log_that_numbers_records_by_a_sequence(
    database_url: str,
) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("CREATE TABLE broken (id bigserial PRIMARY KEY)")
    with ExitStack() as stack:
        connections = [stack.enter_context(psycopg.connect(database_url)) for _ in range(WRITERS)]
        reading = stack.enter_context(psycopg.connect(database_url, autocommit=True))
        writers = [_broken_writer(connection) for connection in connections]
        for _ in range(60):
            result = race(writers, lambda after: _broken_read(reading, after), SECONDS)
            assert result.in_order
            if result.missed:
                break
    assert result.missed != set()


def _broken_writer(connection: psycopg.Connection) -> Callable[[], int]:
    def write() -> int:
        [(offset,)] = connection.execute(
            "INSERT INTO broken DEFAULT VALUES RETURNING id"
        ).fetchall()
        time.sleep(random.uniform(0, 0.004))
        connection.commit()
        return int(offset)

    return write


def _broken_read(connection: psycopg.Connection, after: int) -> list[int]:
    rows = connection.execute("SELECT id FROM broken WHERE id > %s ORDER BY id", (after,))
    return [offset for (offset,) in rows]
