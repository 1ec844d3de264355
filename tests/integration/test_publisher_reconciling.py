"""R6, R26, R27: what waits in the outbox comes into the journal later, and as if it had not."""

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from packhorse.db.connect import connect
from packhorse.messaging.api import (
    Appended,
    Journal,
    JournalUnavailable,
    NotAppended,
    Outgoing,
    TopicMissing,
)
from packhorse.runtime.tracing import TRACEPARENT
from packhorse_services.publisher.outbox import journal_appender, outbox_rows
from packhorse_services.publisher.outbox.journal_appender import JournalAppender
from packhorse_services.publisher.outbox.journal_search import Findings, search
from packhorse_services.publisher.publish.publishing import (
    JournalPatience,
    OutboxFull,
    check_room,
)
from tests.harness.borrowing import pooled
from tests.harness.journals import everything
from tests.harness.memory_author import memory_author
from tests.harness.publishing import (
    ONE_TRY,
    TOPICS,
    Author,
    AwayJournal,
    JournalDouble,
    page,
    publish,
    request,
)


@pytest.fixture
def author(database_url: str, tmp_path: Path) -> Iterator[Author]:
    nodes = (page(f"/p{number}") for number in range(5))
    with memory_author(database_url, tmp_path, *nodes) as author:
        yield author


@pytest.fixture
def away(author: Author) -> AwayJournal:
    away = AwayJournal(author.journal)
    away.away = True
    return away


class Swallowing(JournalDouble):
    """Loses the records whose number in the order of appends is in `lost`, and says so."""

    def __init__(self, journal: Journal, *lost: int) -> None:
        super().__init__(journal)
        self._lost, self._seen = lost, 0

    def append(self, topic: str, record: Outgoing) -> Future[Appended]:
        self._seen += 1
        if self._seen - 1 not in self._lost:
            return self._journal.append(topic, record)
        failed: Future[Appended] = Future()
        failed.set_exception(NotAppended("lost"))
        return failed


@pytest.mark.parametrize(
    ("lost", "journaled", "offsets"),
    [
        ([1], {"/p0": 1, "/p2": 3, "/p3": 4, "/p1": 5, "/p4": 6}, [0, 3, 1, 2]),
        ([1, 3], {"/p0": 1, "/p2": 3, "/p1": 5, "/p3": 6, "/p4": 7}, [0, 2, 1, 3]),
    ],
)
def test_r27_a_package_that_others_overtook_gets_a_new_number(
    author: Author, lost: list[int], journaled: dict[str, int], offsets: list[int]
) -> None:
    """Subscribers skip a number below one that they have seen, so it would be lost (R27)."""
    replica = author.replica(journal=Swallowing(author.journal, *lost))
    group = publish(replica, *(request(f"/p{number}") for number in range(4)))
    publish(replica, request("/p4"))
    placed = author.journaled()
    assert {one.message.entry.paths[0]: one.number[1] for one in placed} == journaled
    assert [one.number[1] for one in placed] == sorted(journaled.values())
    assert [pending.future.result().offset for pending in group] == offsets
    rows = author.rows("SELECT sequence, log_offset, entry FROM bookkeeping.outbox ORDER BY 1")
    assert [row[:2] for row in rows] == [(one.number[1], one.offset) for one in placed]
    described = [outbox_rows.entry_of(entry) for _, _, entry in rows]
    assert [one.sequence for one in described] == [row[0] for row in rows]


def test_r27_a_package_that_nothing_overtook_keeps_its_number(
    author: Author, away: AwayJournal
) -> None:
    """Whoever had begun to send it may still do so, and it would be there twice."""
    publish(author.replica(journal=away), request("/p0"), request("/p1"))
    assert author.replica().reconcile()
    assert [one.number for one in author.journaled()] == [(1, 1), (1, 2)]


def test_r6_a_later_snapshot_waits_for_the_one_before_it(author: Author, away: AwayJournal) -> None:
    for version in (1, 2):
        author.write(page("/p0", version))
        publish(author.replica(journal=away, patience=ONE_TRY), request("/p0"))
    assert not author.replica(journal=Swallowing(author.journal, 0)).reconcile()
    assert author.journaled() == []
    assert author.replica().reconcile()
    assert [one.number for one in author.journaled()] == [(1, 1), (1, 2)]


class Nameless(JournalDouble):
    """Can't say which log it is behind an append, once."""

    def __init__(self, journal: Journal, error: Exception) -> None:
        super().__init__(journal)
        self._error, self.asked = error, False
        self._fails = False

    def append(self, topic: str, record: Outgoing) -> Future[Appended]:
        self._fails = not self.asked
        return self._journal.append(topic, record)

    def identity(self, topic: str) -> str:
        if self._fails:
            self._fails, self.asked = False, True
            raise self._error
        return self._journal.identity(topic)


@pytest.mark.parametrize("error", [JournalUnavailable("away"), TopicMissing("gone")])
def test_r26_an_append_to_a_log_that_has_no_name_is_looked_up(
    author: Author, error: Exception
) -> None:
    nameless = Nameless(author.journal, error)
    [pending] = publish(author.replica(journal=nameless), request("/p0"))
    assert nameless.asked
    assert pending.future.result().offset == 0
    assert len(author.journaled()) == 1


def test_r25_a_search_shows_postgres_that_the_holder_of_the_lock_lives(
    author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[bool] = []
    newest = (
        "SELECT max(query_start) FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name = 'tests-lock'"
    )

    def beating(*arguments: Any, beat: Any) -> Findings:
        before = author.rows(newest)
        beat()
        shown.append(author.rows(newest) > before)
        return search(*arguments, beat=beat)

    publish(author.replica(), request("/p0"))
    monkeypatch.setattr(journal_appender, "search", beating)
    assert author.replica().reconcile()
    assert shown == [True]


def test_what_goes_out_later_carries_its_trace(author: Author, away: AwayJournal) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    publish(author.replica(journal=away), replace(request("/p0"), traceparent=trace))
    assert author.replica().reconcile()
    [record] = everything(author.journal, TOPICS.package)
    assert record.headers[TRACEPARENT] == trace.encode()


def test_an_outbox_that_keeps_one_for_too_long_refuses_the_next(
    author: Author, away: AwayJournal
) -> None:
    patience = JournalPatience(reconcile_s=0, retry_s=0, outbox_age_s=3600)
    replica, delivery = (
        author.replica(journal=away, patience=patience),
        JournalAppender(away, TOPICS.package),
    )
    publish(replica, request("/p0"), request("/p1"))
    with pooled(author.database_url, "tests") as pool:
        check_room(pool, patience, delivery)
        age(author)
        with pytest.raises(OutboxFull):
            check_room(pool, patience, delivery)
    [refused] = publish(replica, request("/p2"))
    assert isinstance(refused.future.exception(), OutboxFull)


def age(author: Author) -> None:
    """Let the first package have waited for more than an hour."""
    with connect(author.database_url, "tests") as connection:
        connection.execute(
            "UPDATE bookkeeping.outbox SET accepted_at = accepted_at - interval '61 minutes' "
            "WHERE sequence = 1"
        )
