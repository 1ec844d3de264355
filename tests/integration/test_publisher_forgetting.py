"""Distributions that the log has forgotten are forgotten too, whatever lies around them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from packhorse.blobs.open import open_blobs
from packhorse.db.connect import connect
from packhorse.db.metadata import BOOKKEEPER
from packhorse.db.roles import act_as
from packhorse.messaging.api import Bounds
from packhorse.messaging.memory import MemoryJournal, MemoryLog
from packhorse.messaging.topics import standard_topics
from packhorse_services.publisher.outbox import outbox_rows
from tests.harness.publishing import TOPICS, Author, page, publish, request
from tests.harness.tidying import tidy


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


@pytest.fixture
def author(database_url: str, tmp_path: Path, log: MemoryLog) -> Iterator[Author]:
    author = Author(database_url, MemoryJournal(log), open_blobs(str(tmp_path / "blobs")))
    author.write(page("/p"))
    yield author
    author.close()


def forget_below(author: Author, offset: int, limit: int) -> int:
    with connect(author.database_url, "tests") as connection:
        act_as(connection, BOOKKEEPER)
        identity = author.journal.identity(TOPICS.package)
        return outbox_rows.forget_below(connection, identity, offset, limit)


def offsets(author: Author) -> list[int | None]:
    rows = author.rows("SELECT log_offset FROM bookkeeping.outbox ORDER BY epoch, sequence")
    return [offset for (offset,) in rows]


def test_at_most_the_limit_goes_at_once(author: Author) -> None:
    publish(author.replica(), *[request("/p")] * 5)
    assert [forget_below(author, 4, 3) for _ in range(3)] == [3, 1, 0]
    assert offsets(author) == [4]


def test_what_waits_keeps_nothing_else_from_being_forgotten(author: Author) -> None:
    publish(author.replica(), *[request("/p")] * 6)
    waits = "UPDATE bookkeeping.outbox SET log_offset = NULL, value = '' WHERE sequence < 4"
    with connect(author.database_url, "tests") as connection:
        connection.execute(waits)
    assert forget_below(author, 6, 2) == 2
    assert forget_below(author, 6, 2) == 1
    assert offsets(author) == [None, None, None]


def test_what_an_earlier_log_had_is_forgotten_whatever_its_offset(
    author: Author, log: MemoryLog
) -> None:
    replica = author.replica()
    publish(replica, *[request("/p")] * 5)
    log.remove_topic(TOPICS.package)
    author.journal.create_topics(standard_topics(TOPICS))
    replica.close()  # a new connection is a reason to look at the journal's identity
    publish(replica, *[request("/p")] * 2)
    assert offsets(author) == [0, 1, 2, 3, 4, 0, 1]
    tidy(author)
    assert offsets(author) == [0, 1]
    author.journal.truncate(TOPICS.package, 1)
    tidy(author)
    assert offsets(author) == [1]


def test_what_a_new_log_has_is_not_forgotten_at_the_bounds_of_the_one_before(
    author: Author, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = author.replica()
    publish(replica, *[request("/p")] * 5)
    author.journal.truncate(TOPICS.package, 4)
    before = author.journal.bounds(TOPICS.package)

    def made_anew_meanwhile(topic: str) -> Bounds:
        monkeypatch.undo()
        log.remove_topic(topic)
        author.journal.create_topics(standard_topics(TOPICS))
        replica.close()
        publish(replica, *[request("/p")] * 2)
        return before

    monkeypatch.setattr(author.journal, "bounds", made_anew_meanwhile)
    tidy(author)
    assert offsets(author) == [0, 1]


def test_r5_a_key_that_outlives_its_distribution_keeps_the_answer(author: Author) -> None:
    publish(author.replica(), request("/p"))
    [first] = publish(author.replica(), request("/p", key="k"))
    author.journal.truncate(TOPICS.package, 2)
    tidy(author)
    assert offsets(author) == []
    [again] = publish(author.replica(), request("/p", key="k"))
    answer = again.future.result()
    assert answer.repeated
    assert (answer.package_id, answer.offset) == (first.package_id, 1)


def test_an_agent_forgets_nothing_that_another_one_promises_to_keep(author: Author) -> None:
    with connect(author.database_url, "tests") as connection:
        connection.execute(
            """
            INSERT INTO bookkeeping.idempotency_key
                (agent, caller, key, fingerprint, package_id, created_at)
            SELECT agent, 'tester', 'k' || days, '', '', now() - make_interval(days => days)
            FROM unnest(ARRAY['one', 'two']) AS agent, unnest(ARRAY[3, 30, 366]) AS days
            """
        )
        connection.execute(
            """
            INSERT INTO bookkeeping.producer (agent, caller, name, epoch, last_sequence, used_at)
            SELECT agent, caller, key, 1, 1, created_at FROM bookkeeping.idempotency_key
            """
        )
    kept = (
        "SELECT agent, key FROM bookkeeping.idempotency_key ORDER BY 1, created_at DESC",
        "SELECT agent, name FROM bookkeeping.producer ORDER BY 1, used_at DESC",
    )
    tidy(author, agent="one", idempotency_hours=24, producer_days=1)
    for query in kept:
        assert author.rows(query) == [("two", "k3"), ("two", "k30")], "nobody keeps any for a year"
    tidy(author, agent="two", idempotency_hours=7 * 24, producer_days=7)
    for query in kept:
        assert author.rows(query) == [("two", "k3")]


def test_finding_nothing_to_forget_costs_no_reading_of_the_table(author: Author) -> None:
    publish(author.replica(), request("/p"))
    with connect(author.database_url, "tests", autocommit=True) as connection:
        connection.execute(
            """
            INSERT INTO bookkeeping.outbox (epoch, sequence, snapshot, package_id, entry,
                log_offset, generation)
            SELECT 1, n, n, n::text, '', n, slot.generation
            FROM bookkeeping.slot, generate_series(2, 50000) AS n
            """
        )
        connection.execute("ANALYZE bookkeeping.outbox")
        with connection.transaction():
            plan = connection.execute(
                "EXPLAIN " + outbox_rows.FORGET,
                (1000, "", 1, 1000, 1000),
            ).fetchall()
    lines = "\n".join(line for (line,) in plan)
    assert "outbox_placed" in lines
    assert "Seq Scan on outbox" not in lines
