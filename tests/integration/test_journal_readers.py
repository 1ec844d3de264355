"""Readers of the SQL journal when connections break, topics go, and records are missing (R2)."""

import threading
from collections.abc import Callable, Iterator

import psycopg
import pytest

from packhorse.db.connect import connect
from packhorse.messaging.api import (
    Journal,
    JournalUnavailable,
    LogEnd,
    OffsetOutOfRange,
    Outgoing,
    Reader,
    Record,
    TopicMissing,
)
from packhorse.messaging.open import open_journal
from packhorse.messaging.sql import journal as sql_journal
from packhorse.messaging.sql.hints import JournalListener, announcement
from packhorse.messaging.sql.session import SharedSession
from tests.harness.journals import DEADLINE_S, PATIENT, append_all, create, read_until
from tests.harness.waiting import eventually
from tests.harness.wire import CuttingRelay


@pytest.fixture
def journal(database_url: str) -> Iterator[Journal]:
    journal = open_journal(database_url, client_name="readers")
    yield journal
    journal.close()


@pytest.fixture
def topic(journal: Journal) -> str:
    return create(journal)


@pytest.fixture
def relay(database_url: str) -> Iterator[CuttingRelay]:
    with CuttingRelay(database_url) as relay:
        yield relay


@pytest.fixture
def remote(relay: CuttingRelay) -> Iterator[Journal]:
    journal = open_journal(relay.url, client_name="remote")
    yield journal
    journal.close()


def _poll_patiently(reader: Reader, count: int) -> list[Record]:
    """Poll as a worker does: what is unavailable now is asked for again."""
    records: list[Record] = []

    def look() -> bool:
        try:
            records.extend(reader.poll(0.5))
        except JournalUnavailable:
            return False
        return len(records) >= count

    eventually(look, "the records")
    return records


def test_a_poll_fails_while_the_database_is_away_and_loses_nothing(
    journal: Journal, topic: str, relay: CuttingRelay, remote: Journal
) -> None:
    append_all(journal, topic, [b"1", b"2"])
    with remote.reader(topic, LogEnd.OLDEST) as reader:
        assert [record.value for record in read_until(reader, 2)] == [b"1", b"2"]
        relay.refusing = True
        relay.cut_all()
        for _ in range(3):
            with pytest.raises(JournalUnavailable):
                reader.poll(0.1)
        append_all(journal, topic, [b"3"])
        relay.refusing = False
        assert [record.value for record in _poll_patiently(reader, 1)] == [b"3"]


def test_an_answer_that_was_lost_is_read_again(
    journal: Journal, topic: str, relay: CuttingRelay, remote: Journal
) -> None:
    append_all(journal, topic, [b"1", b"2"])
    with remote.reader(topic, LogEnd.OLDEST) as reader:
        relay.cut_after(b"octet_length")
        with pytest.raises(JournalUnavailable):
            reader.poll(5.0)
        assert [record.value for record in _poll_patiently(reader, 2)] == [b"1", b"2"]


def test_lookups_go_on_after_their_connection_broke(
    journal: Journal, topic: str, relay: CuttingRelay, remote: Journal
) -> None:
    append_all(journal, topic, [b"1"])
    assert remote.bounds(topic).next == 1
    relay.cut_all()
    eventually(lambda: _next(remote, topic) == 1, "another connection")


def _next(journal: Journal, topic: str) -> int:
    try:
        return journal.bounds(topic).next
    except JournalUnavailable:
        return 0


def test_a_reader_goes_on_without_hints(
    journal: Journal, topic: str, relay: CuttingRelay, remote: Journal
) -> None:
    relay.cut_before(b"LISTEN")
    with remote.reader(topic, LogEnd.NEXT) as reader:
        assert list(reader.poll(0.3)) == []
        append_all(journal, topic, [b"new"])
        assert [record.value for record in read_until(reader, 1)] == [b"new"]


def test_hints_come_again_after_their_connection_broke(relay: CuttingRelay) -> None:
    hints, session = JournalListener(relay.url, "hints"), SharedSession(relay.url, "announcer")
    for _ in range(2):
        _hear_of(hints, session, 7)
        relay.cut_all()
    hints.close()
    session.close()


def test_r30_what_strangers_send_on_the_channel_is_ignored(database_url: str) -> None:
    hints, session = JournalListener(database_url, "hints"), SharedSession(database_url, "stranger")
    _hear_of(hints, session, 7)
    with session.use() as connection:
        for payload in ("", "no number", "8", "x" * 7000):
            connection.execute("SELECT pg_notify('packhorse_journal', %s)", (payload,))
    _hear_of(hints, session, 7)
    hints.close()
    session.close()


def test_a_reader_goes_on_after_its_journal_was_closed(database_url: str, journal: Journal) -> None:
    topic = create(journal)
    closed = open_journal(database_url, client_name="closed")
    with closed.reader(topic, LogEnd.NEXT) as reader:
        assert list(reader.poll(0.1)) == []
        closed.close()
        closed.close()
        append_all(journal, topic, [b"new"])
        assert [record.value for record in read_until(reader, 1)] == [b"new"]


def _hear_of(hints: JournalListener, session: SharedSession, topic_id: int) -> None:
    before = hints.ticket(topic_id)

    def heard() -> bool:
        hints.wait(topic_id, before, 0.1, threading.Event())
        try:
            with session.use() as connection:
                connection.execute(announcement([topic_id]))
        except JournalUnavailable:
            return False
        return hints.ticket(topic_id) != before

    eventually(heard, "a hint")


def test_r24_a_reader_ends_when_its_topic_is_created_anew(
    database_url: str, journal: Journal, topic: str
) -> None:
    append_all(journal, topic, [b"old"])
    with journal.reader(topic, LogEnd.NEXT) as reader:
        with psycopg.connect(database_url) as connection:
            connection.execute("DELETE FROM journal.topic WHERE name = %s", (topic,))
        with pytest.raises(TopicMissing, match=topic):
            reader.poll(1.0)


def _only_table(connection: psycopg.Connection) -> str:
    [(table,)] = connection.execute(
        "SELECT format('journal.records_%s_%s', partition_id, first_offset) FROM journal.segment"
    ).fetchall()
    return str(table)


def test_r32_headers_that_nobody_has_packed_are_damage_and_the_next_record_is_read(
    database_url: str, journal: Journal, topic: str
) -> None:
    append_all(journal, topic, [b"0", b"1"])
    with psycopg.connect(database_url) as connection:
        spoil = f'UPDATE {_only_table(connection)} SET headers = %s WHERE "offset" = 0'
        connection.execute(spoil, (b"\xff",))
    with journal.reader(topic, LogEnd.OLDEST) as reader:
        damaged, sound = read_until(reader, 2)
    assert "key or headers are none" in damaged.damage
    assert (damaged.offset, damaged.value, sound.value) == (0, b"", b"1")


def test_r2_a_hole_that_somebody_made_is_reported_and_never_jumped(
    database_url: str, journal: Journal, topic: str
) -> None:
    append_all(journal, topic, [str(number).encode() for number in range(10)])
    with psycopg.connect(database_url) as connection:
        connection.execute(f'DELETE FROM {_only_table(connection)} WHERE "offset" = 4')
    with journal.reader(topic, LogEnd.OLDEST) as reader:
        assert [record.value for record in read_until(reader, 4)] == [b"0", b"1", b"2", b"3"]
        for _ in range(2):
            with pytest.raises(OffsetOutOfRange) as reported:
                reader.poll(1.0)
        assert reported.value.wanted == 4
        reader.seek(5)
        assert read_until(reader, 5)[0].value == b"5"
    assert journal.read_at(topic, 4) is None


def test_a_partition_that_is_missing_is_named(journal: Journal) -> None:
    topic = create(journal, partitions=2)
    attempts: list[Callable[[], object]] = [
        lambda: journal.bounds(topic, 2),
        lambda: journal.read_at(topic, 0, 2),
        lambda: journal.offset_at(topic, 0, 2),
        lambda: journal.truncate(topic, 0, 2),
        lambda: journal.reader(topic, LogEnd.OLDEST, partition=2),
    ]
    for attempt in attempts:
        with pytest.raises(TopicMissing, match=topic):
            attempt()


def test_readers_wait_for_no_writer(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that holds the counter stops appends, but neither polls nor lookups."""
    monkeypatch.setattr(sql_journal, "APPENDER_TIMEOUTS", PATIENT)
    journal = open_journal(database_url, client_name="readers")
    topic = create(journal)
    append_all(journal, topic, [b"1"])
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE journal.partition SET next = next + 1")
        future = journal.append(topic, Outgoing(b"2"))
        with journal.reader(topic, LogEnd.OLDEST) as reader:
            assert [record.value for record in read_until(reader, 1)] == [b"1"]
            assert list(reader.poll(0.0)) == []
        assert journal.bounds(topic).next == 1
        assert not future.done()
        connection.rollback()
    assert future.result(DEADLINE_S).offset == 1
    journal.close()


def test_readers_that_wait_take_turns_with_one_connection(database_url: str) -> None:
    journal = open_journal(database_url, client_name="turns")
    topic = create(journal)
    readers = [journal.reader(topic, LogEnd.NEXT) for _ in range(5)]
    for reader in readers:
        assert list(reader.poll(0.01)) == []
    with connect(database_url, "turns-look", autocommit=True) as connection:
        counted = (
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'turns' "
            "AND query NOT LIKE '%LISTEN%' AND query NOT LIKE '%notify%'"
        )
        # The connection of the hints may be about to listen.
        eventually(lambda: connection.execute(counted).fetchall() == [(1,)], "one connection")
    journal.close()


def test_a_reader_that_was_at_the_end_looks_at_once_where_it_was_sent(journal: Journal) -> None:
    topic = create(journal)
    append_all(journal, topic, [b"first"])
    with journal.reader(topic, LogEnd.NEXT) as reader:
        assert list(reader.poll(0.3)) == []
        reader.seek(0)
        assert [record.value for record in reader.poll(5.0)] == [b"first"]


def test_what_was_appended_before_a_poll_without_waiting_is_found(journal: Journal) -> None:
    topic = create(journal)
    with journal.reader(topic, LogEnd.NEXT) as reader:
        assert list(reader.poll(0.3)) == []
        append_all(journal, topic, [b"new"])
        assert [record.value for record in reader.poll(0.0)] == [b"new"]
