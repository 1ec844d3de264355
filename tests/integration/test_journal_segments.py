"""Segments of the SQL journal: how they follow each other, leave, and wait for nobody (R4)."""

from collections.abc import Iterator

import psycopg
import pytest

from packhorse.messaging.api import Appended, Bounds, Journal, LogEnd, Outgoing
from packhorse.messaging.sql.journal import SqlJournal
from packhorse.messaging.sql.segments import SegmentLimits
from tests.harness.journals import DEADLINE_S, append_all, create, read_until
from tests.harness.postgres import waiting_for_locks
from tests.harness.waiting import eventually


@pytest.fixture
def journal(database_url: str) -> Iterator[Journal]:
    """A journal whose segments hold 10 records."""
    journal = SqlJournal(database_url, "segments", SegmentLimits(records=10))
    yield journal
    journal.close()


@pytest.fixture
def topic(journal: Journal) -> str:
    """A topic with three closed segments of 10 records and an open one of 5."""
    topic = create(journal)
    for number in range(35):
        append_all(journal, topic, [str(number).encode()])
    return topic


def _segments(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'journal'::regnamespace"
            r" AND relkind = 'r' AND relname LIKE 'records\_%' ORDER BY oid"
        ).fetchall()
    return [name.split("_")[2] for (name,) in rows]


def test_a_full_segment_is_followed_by_the_next(
    database_url: str, journal: Journal, topic: str
) -> None:
    assert _segments(database_url) == ["0", "10", "20", "30"]
    with journal.reader(topic, 5) as reader:
        values = [record.value for record in read_until(reader, 30, max_records=7)]
    assert values == [str(number).encode() for number in range(5, 35)]


def test_a_segment_that_is_full_by_bytes_is_followed_too(database_url: str) -> None:
    journal = SqlJournal(database_url, "bytes", SegmentLimits(bytes=1300))
    topic = create(journal)
    for _ in range(5):
        append_all(journal, topic, [b"x" * 600])
    assert _segments(database_url) == ["0", "2", "4"]
    journal.close()


def test_a_group_of_two_topics_is_appended_once_where_one_segment_is_full(
    database_url: str, journal: Journal
) -> None:
    first, full, other = (create(journal) for _ in range(3))
    for topic, count in ((first, 1), (full, 10), (other, 1)):
        append_all(journal, topic, [b"before"] * count)
    with psycopg.connect(database_url) as holder:
        holder.execute(
            "SELECT FROM journal.partition WHERE topic_id = "
            "(SELECT id FROM journal.topic WHERE name = %s) FOR UPDATE",
            (first,),
        )
        under_way = [journal.append(first, Outgoing(b"held"))]
        eventually(lambda: waiting_for_locks(database_url), "the appender waits")
        under_way += [journal.append(topic, Outgoing(b"both")) for topic in (other, full)]
    places = [future.result(DEADLINE_S) for future in under_way]
    assert places == [Appended(0, 1), Appended(0, 1), Appended(0, 10)]
    assert [journal.bounds(topic) for topic in (other, full)] == [Bounds(0, 2), Bounds(0, 11)]


def test_r4_truncation_drops_the_segments_below_and_no_other(
    database_url: str, journal: Journal, topic: str
) -> None:
    journal.truncate(topic, 19)
    assert _segments(database_url) == ["10", "20", "30"]
    journal.truncate(topic, 20)
    assert _segments(database_url) == ["20", "30"]
    assert journal.bounds(topic) == Bounds(20, 35)


def test_r4_emptying_a_topic_drops_the_open_segment_too(
    database_url: str, journal: Journal, topic: str
) -> None:
    journal.truncate(topic, 35)
    assert _segments(database_url) == []
    assert append_all(journal, topic, [b"next"])[0].offset == 35
    assert _segments(database_url) == ["35"]


def test_r4_a_drop_waits_for_a_long_query_while_nothing_waits_for_the_drop(
    database_url: str, journal: Journal, topic: str
) -> None:
    with psycopg.connect(database_url) as dump:
        [(table,)] = dump.execute(
            "SELECT format('journal.records_%s_0', partition_id)"
            " FROM journal.segment WHERE first_offset = 0"
        ).fetchall()
        dump.execute(f"SELECT count(*) FROM {table}")
        journal.truncate(topic, 25)
        assert _segments(database_url) == ["0", "20", "30"]
        assert journal.bounds(topic) == Bounds(25, 35)
        assert append_all(journal, topic, [b"meanwhile"])[0].offset == 35
        with journal.reader(topic, LogEnd.OLDEST) as reader:
            assert read_until(reader, 11)[0].offset == 25
    journal.enforce_retention()
    assert _segments(database_url) == ["20", "30"]


def test_r4_retention_drops_segments_by_the_databases_clock(
    database_url: str, journal: Journal
) -> None:
    topic = create(journal, retention_ms=300)
    for _ in range(25):
        append_all(journal, topic, [b"x"])

    def gone() -> bool:
        journal.enforce_retention()
        return _segments(database_url) == []

    eventually(gone, "the segments' end")
    assert journal.bounds(topic) == Bounds(25, 25)


def test_r4_times_are_found_across_segments(journal: Journal, topic: str) -> None:
    for offset in (0, 9, 10, 17, 34):
        record = journal.read_at(topic, offset)
        assert record is not None
        found = journal.read_at(topic, journal.offset_at(topic, record.time_ms))
        before = journal.read_at(topic, journal.offset_at(topic, record.time_ms) - 1)
        assert found is not None
        assert found.time_ms == record.time_ms
        assert before is None or before.time_ms < record.time_ms
    assert journal.offset_at(topic, record.time_ms + 1) == 35


def test_r4_a_time_that_was_forgotten_is_found_at_the_oldest_record(
    journal: Journal, topic: str
) -> None:
    record = journal.read_at(topic, 28)
    assert record is not None
    journal.truncate(topic, 29)
    assert journal.offset_at(topic, record.time_ms) == 29


def test_times_never_fall_when_the_databases_clock_does(
    database_url: str, journal: Journal, topic: str
) -> None:
    future = 4_000_000_000_000
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE journal.partition SET last_ms = %s", (future,))
    append_all(journal, topic, [b"x"])
    record = journal.read_at(topic, 35)
    assert record is not None
    assert record.time_ms == future
    assert journal.offset_at(topic, future) == 35
    journal.close()
    reopened = SqlJournal(database_url, "after a restart")
    append_all(reopened, topic, [b"y"])
    record = reopened.read_at(topic, 36)
    reopened.close()
    assert record is not None
    assert record.time_ms == future


def test_r3_a_server_that_does_not_keep_commits_is_a_fault(
    database_url: str, journal: Journal
) -> None:
    assert journal.check_topics([]) == []
    name = database_url.rpartition("/")[2]
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    journal.close()
    reopened = SqlJournal(database_url, "check")
    [sentence] = reopened.check_topics([])
    reopened.close()
    assert "set synchronous_commit = on" in sentence


def test_a_server_that_is_a_standby_is_a_fault(database_url: str) -> None:
    name = database_url.rpartition("/")[2]
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA standby")
        connection.execute(
            "CREATE FUNCTION standby.pg_is_in_recovery() RETURNS boolean RETURN true"
        )
        connection.execute(f"ALTER DATABASE {name} SET search_path = standby, pg_catalog")
    journal = SqlJournal(database_url, "check")
    [sentence] = journal.check_topics([])
    journal.close()
    assert "is a standby" in sentence
