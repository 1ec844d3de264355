"""R26 for replayable sources: what a restored author does not know is in the journal."""

import random

import pytest

from packhorse.messaging.numbered import Number
from packhorse_services.publisher.outbox import producers
from packhorse_services.publisher.outbox.producers import SequencePassed
from tests.harness.jobs.stored import bookkeeper
from tests.harness.postgres import Databases
from tests.harness.producers import Source, outcome, replay
from tests.harness.publishing import (
    AGENT,
    ONE_TRY,
    Author,
    LossyJournal,
    publish,
)

ALL_JOURNALS = ["memory", "sql", pytest.param("kafka", marks=pytest.mark.kafka)]


def restored(author: Author, backup: str) -> Author:
    return Author(backup, author.journal, author.blobs, author.topics)


def backed_up(databases: Databases, author: Author) -> str:
    author.close()
    return databases.copy(author.database_url)


@pytest.mark.parametrize("journal_url", ALL_JOURNALS, indirect=True)
def test_r26_a_restored_author_finds_the_sequences_that_it_does_not_know(
    databases: Databases, author: Author, source: Source
) -> None:
    publish(author.replica(), *source.requests(1, 2))
    backup = backed_up(databases, author)
    publish(author.replica(), *source.requests(3, 4, 9))
    late = Source(author, "late")
    late.register()
    publish(author.replica(), *late.requests(1, 2))
    restored_author = restored(author, backup)
    replica = restored_author.replica()
    replica.reconcile()
    for one in (Source(restored_author), Source(restored_author, "late")):
        old = one.known()
        assert old.last_sequence == {"import": 9, "late": 2}[one.name]
        assert one.register().epoch > late.epoch
        assert isinstance(outcome(replica, one.request(old.last_sequence)), SequencePassed)
        publish(replica, one.request(old.last_sequence + 1))
    restored_author.close()
    assert source.journaled() == [1, 2, 3, 4, 9, 10]
    assert late.journaled() == [1, 2, 3]


def test_r26_a_backup_from_before_the_first_package_finds_them_too(
    databases: Databases, author: Author, source: Source
) -> None:
    author.replica().reconcile()
    backup = backed_up(databases, author)
    publish(author.replica(), *source.requests(1, 2))
    restored_author = restored(author, backup)
    replica = restored_author.replica()
    replica.reconcile()
    replay(replica, Source(restored_author), 3)
    restored_author.close()
    assert source.journaled() == [1, 2, 3]


@pytest.mark.parametrize("journal_url", ["memory"], indirect=True)
def test_r26_what_the_journal_says_brings_no_producer_back(author: Author, source: Source) -> None:
    said = [(5, 3), (3, 9), (7, 2), (6, 9)]
    known = [(5, 3), (5, 9), (7, 9), (7, 9)]
    with bookkeeper(author.database_url) as connection:
        for number, expected in zip(said, known, strict=True):
            producers.catch_up(connection, [Number(source.qualified, *number)], 10)
            rows = connection.execute("SELECT epoch, last_sequence FROM bookkeeping.producer")
            assert rows.fetchall() == [expected]
    assert source.register().epoch > 7


@pytest.mark.parametrize("journal_url", ["memory"], indirect=True)
def test_r30_each_agent_has_as_many_producers_as_one_may_have(
    author: Author, source: Source
) -> None:
    names = ["one/a/caller", "one/b/caller", "two/a/caller", f"{AGENT}/late/caller"]
    with bookkeeper(author.database_url) as connection:
        producers.catch_up(connection, [Number(name, 1, 1) for name in names], 1)
    rows = author.rows("SELECT agent, name FROM bookkeeping.producer ORDER BY 1")
    assert rows == [(AGENT, source.name), ("one", "b"), ("two", "a")]


@pytest.mark.proof
def test_r26_the_checker_catches_a_restored_author_that_does_not_look(
    databases: Databases, author: Author, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "catch_up", lambda *_: None)
    publish(author.replica(), *source.requests(1))
    backup = backed_up(databases, author)
    publish(author.replica(), *source.requests(2))
    restored_author = restored(author, backup)
    publish(restored_author.replica(), *source.requests(2))
    restored_author.close()
    assert source.journaled() == [1, 2, 2]


def test_r26_records_that_are_sent_late_name_their_producer(author: Author, source: Source) -> None:
    lossy = LossyJournal(author.journal, random.Random(0), faults=1.0)
    losing = author.replica(journal=lossy, patience=ONE_TRY)
    publish(losing, *source.requests(1, 2, 3))
    author.replica().reconcile()
    assert sorted(source.journaled()) == [1, 2, 3]
