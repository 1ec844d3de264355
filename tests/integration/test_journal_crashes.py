"""The SQL journal when writers are killed and when the server crashes (R1, R3)."""

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Self

import psycopg
import pytest

from packhorse.messaging.api import (
    Appended,
    AppendUnknown,
    Journal,
    JournalUnavailable,
    LogEnd,
    NotAppended,
    Outgoing,
    Record,
)
from packhorse.messaging.open import open_journal
from packhorse_services.cli.stack.embedded import EmbeddedPostgres
from tests.harness.depth import at_depth
from tests.harness.journals import DEADLINE_S, create
from tests.harness.postgres import Databases, running_postgres
from tests.harness.waiting import eventually

KILLS, BOUNCES = at_depth(4, 2), at_depth(3, 2)


class Tail:
    """A reader in a thread that goes on whatever happens, and checks that offsets have no hole."""

    def __init__(self, journal: Journal, topic: str) -> None:
        self.records: list[Record] = []
        self._journal, self._topic = journal, topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with self._journal.reader(self._topic, LogEnd.OLDEST) as reader:
            while not self._stop.is_set():
                try:
                    self.records.extend(reader.poll(0.2))
                except JournalUnavailable:
                    continue

    def wait_for_more(self, count: int) -> None:
        wanted = len(self.records) + count
        eventually(lambda: len(self.records) >= wanted, "more records")

    def read_to_the_end(self) -> dict[int, str]:
        """Return the value at each offset, once all are read."""
        bounds_next = self._journal.bounds(self._topic).next
        eventually(lambda: len(self.records) >= bounds_next, "the end of the log")
        assert [record.offset for record in self.records] == list(range(bounds_next))
        return {record.offset: record.value.decode() for record in self.records}


def test_writers_killed_at_any_moment_leave_neither_holes_nor_losses(
    database_url: str, tmp_path: Path
) -> None:
    outputs = [tmp_path / f"writer-{number}" for number in range(KILLS)]
    with closing(open_journal(database_url, client_name="tail")) as journal:
        topic = create(journal)
        with Tail(journal, topic) as tail:
            for output in outputs:
                _write_until_killed(database_url, topic, output, tail)
            _wait_for_the_dead(database_url)
            log = tail.read_to_the_end()
    assert max(Counter(log.values()).values()) == 1
    acknowledged = [line for output in outputs for line in _whole_lines(output)]
    assert acknowledged
    for line in acknowledged:
        offset, _, value = line.partition(" ")
        assert log[int(offset)] == value


def _write_until_killed(url: str, topic: str, output: Path, tail: Tail) -> None:
    command = [sys.executable, "-m", "tests.integration.append_forever", url, topic, output.name]
    with output.open("w") as acknowledged:
        writer = subprocess.Popen(command, stdout=acknowledged)
        try:
            tail.wait_for_more(50)
        finally:
            writer.kill()
            writer.wait()


def _whole_lines(output: Path) -> list[str]:
    """What the writer printed, without a line that its death cut short."""
    return output.read_text().split("\n")[:-1]


def _wait_for_the_dead(url: str) -> None:
    """The server may still commit what a killed writer had sent."""
    with psycopg.connect(url, autocommit=True) as connection:
        counting = (
            "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'writer-%'"
            " AND datname = current_database()"
        )
        eventually(lambda: connection.execute(counting).fetchall() == [(0,)], "their end")


@pytest.fixture(scope="module")
def own_server() -> Iterator[EmbeddedPostgres]:
    """A server that no other file uses, as some tests end it and one makes it unsafe."""
    with running_postgres() as server:
        yield server


def test_a_server_that_crashes_again_and_again_loses_nothing_acknowledged(
    own_server: EmbeddedPostgres,
) -> None:
    url = Databases(own_server).new("crash")
    with closing(open_journal(url, client_name="crash")) as journal:
        topic = create(journal)
        with Tail(journal, topic) as tail:
            with Writer(journal, topic) as writer:
                for _ in range(BOUNCES):
                    tail.wait_for_more(200)
                    own_server.stop("immediate")
                    own_server.start()
                tail.wait_for_more(200)
            log = tail.read_to_the_end()
        assert journal.check_topics([]) == []
    _check(writer.outcomes, log)


def _check(outcomes: list[Future[Appended]], log: dict[int, str]) -> None:
    offsets = {value: offset for offset, value in log.items()}
    assert len(offsets) == len(log)  # no value twice
    assert sum(future.exception() is None for future in outcomes) > 500
    for number, future in enumerate(outcomes):
        error = future.exception()
        if error is None:
            assert offsets[str(number)] == future.result().offset
        elif isinstance(error, NotAppended):
            assert str(number) not in offsets
        else:
            assert isinstance(error, AppendUnknown)
    assert list(log.values()) == sorted(log.values(), key=int)


class Writer:
    """Appends numbers in order, some at a time in flight, and keeps every outcome."""

    def __init__(self, journal: Journal, topic: str) -> None:
        self.outcomes: list[Future[Appended]] = []
        self._journal, self._topic = journal, topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            for _ in range(20):
                value = str(len(self.outcomes)).encode()
                self.outcomes.append(self._journal.append(self._topic, Outgoing(value)))
            self.outcomes[-1].exception(DEADLINE_S)


def test_r3_a_server_that_does_not_flush_is_a_fault(own_server: EmbeddedPostgres) -> None:
    url = Databases(own_server).new("unsafe")
    with closing(open_journal(url, client_name="check")) as journal:
        _configure(url, "SET fsync = off", "SET full_page_writes = off")
        eventually(lambda: len(journal.check_topics([])) == 2, "the new settings")
        first, second = journal.check_topics([])
        _configure(url, "RESET ALL")
        eventually(lambda: journal.check_topics([]) == [], "those of before")
    assert "set fsync = on" in first
    assert "set full_page_writes = on" in second


def _configure(url: str, *changes: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for change in changes:
            connection.execute(f"ALTER SYSTEM {change}".encode())
        connection.execute("SELECT pg_reload_conf()")
