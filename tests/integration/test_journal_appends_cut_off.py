"""An append whose connection breaks: the caller learns which of three happened (R3, R26)."""

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress

import psycopg
import pytest

from packhorse.messaging.api import (
    Appended,
    AppendUnknown,
    Journal,
    LogEnd,
    NotAppended,
    Outgoing,
)
from packhorse.messaging.open import open_journal
from packhorse.messaging.sql.appender import SqlAppender
from packhorse.messaging.sql.group import APPENDER_TIMEOUTS, GroupWriter
from packhorse.messaging.sql.segments import DEFAULT_LIMITS
from packhorse.messaging.sql.session import Sessions, SharedSession
from tests.harness.borrowing import borrowed
from tests.harness.journals import DEADLINE_S, append_all, create, read_until
from tests.harness.postgres import end_sessions
from tests.harness.waiting import eventually
from tests.harness.wire import CuttingRelay


@pytest.fixture
def direct(database_url: str) -> Iterator[Journal]:
    """The journal without a relay: it says what is really there."""
    journal = open_journal(database_url, client_name="direct")
    yield journal
    journal.close()


@pytest.fixture
def topic(direct: Journal) -> str:
    return create(direct)


@pytest.fixture
def relay(database_url: str) -> Iterator[CuttingRelay]:
    with CuttingRelay(database_url) as relay:
        yield relay


@pytest.fixture
def cut_off(relay: CuttingRelay, topic: str) -> Iterator[Journal]:
    """A journal that appends by way of the relay, connected already."""
    journal = open_journal(relay.url, client_name="cut off")
    append_all(journal, topic, [b"first"])
    yield journal
    journal.close()


def _log(journal: Journal, topic: str) -> list[bytes]:
    bounds = journal.bounds(topic)
    with journal.reader(topic, LogEnd.OLDEST) as reader:
        return [record.value for record in read_until(reader, bounds.next - bounds.oldest)]


def test_r3_a_commit_that_never_arrived_is_not_appended(
    relay: CuttingRelay, cut_off: Journal, direct: Journal, topic: str
) -> None:
    relay.cut_before(b"COMMIT")
    with pytest.raises(NotAppended):
        cut_off.append(topic, Outgoing(b"lost")).result(DEADLINE_S)
    assert relay.cuts == 1
    assert _log(direct, topic) == [b"first"]
    assert append_all(cut_off, topic, [b"again"]) == [Appended(0, 1)]


def test_r3_a_commit_whose_answer_was_lost_is_appended(
    relay: CuttingRelay, cut_off: Journal, direct: Journal, topic: str
) -> None:
    relay.cut_after(b"COMMIT")
    assert append_all(cut_off, topic, [b"kept"]) == [Appended(0, 1)]
    assert relay.cuts == 1
    assert _log(direct, topic) == [b"first", b"kept"]


def test_r3_a_commit_that_still_goes_on_is_waited_for(
    database_url: str, relay: CuttingRelay, cut_off: Journal, direct: Journal, topic: str
) -> None:
    """The connection is gone, and the server only then begins to commit, slowly."""
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "CREATE FUNCTION journal.sleep() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN PERFORM pg_sleep(1); RETURN NULL; END $$"
        )
        connection.execute(
            "CREATE CONSTRAINT TRIGGER sleep AFTER UPDATE OF next ON journal.partition"
            " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION journal.sleep()"
        )
    relay.cut_behind(b"COMMIT")
    assert append_all(cut_off, topic, [b"slow"]) == [Appended(0, 1)]
    assert relay.cuts == 1
    assert _log(direct, topic) == [b"first", b"slow"]


def test_r3_a_lost_group_is_not_taken_for_anothers_at_the_same_offset(
    relay: CuttingRelay, cut_off: Journal, direct: Journal, topic: str
) -> None:
    """Another process appends an equal record at the very offset that the lost group had."""
    relay.cut_before(b"COMMIT")
    with _slow_lookups(relay):
        future = cut_off.append(topic, Outgoing(b"equal"))
        eventually(lambda: relay.cuts == 1, "the cut")
        assert append_all(direct, topic, [b"equal"]) == [Appended(0, 1)]
    with pytest.raises(NotAppended):
        future.result(DEADLINE_S)
    assert _log(direct, topic) == [b"first", b"equal"]


def test_r3_a_lost_group_that_would_have_been_the_first_is_not_appended(
    relay: CuttingRelay, cut_off: Journal, direct: Journal
) -> None:
    empty = create(direct)
    relay.cut_before(b"COMMIT")
    with pytest.raises(NotAppended):
        cut_off.append(empty, Outgoing(b"lost")).result(DEADLINE_S)
    assert append_all(cut_off, empty, [b"again"]) == [Appended(0, 0)]


def test_r3_nobody_knows_of_a_group_whose_place_was_forgotten(
    relay: CuttingRelay, cut_off: Journal, direct: Journal, topic: str
) -> None:
    relay.cut_after(b"COMMIT")
    with _slow_lookups(relay):
        future = cut_off.append(topic, Outgoing(b"forgotten"))
        eventually(lambda: direct.bounds(topic).next == 2, "the commit")
        direct.truncate(topic, 2)
    with pytest.raises(AppendUnknown, match="moved on"):
        future.result(DEADLINE_S)


@contextmanager
def _slow_lookups(relay: CuttingRelay) -> Iterator[None]:
    """Keep the appender from looking into the log before the block has ended."""
    relay.refuse_after_cut = True
    yield
    relay.refuse_after_cut = relay.refusing = False


def test_r3_nobody_knows_while_the_database_stays_away(
    relay: CuttingRelay, direct: Journal, topic: str
) -> None:
    sessions = Sessions(relay.url, "impatient", APPENDER_TIMEOUTS)
    appender = SqlAppender(GroupWriter(sessions, DEFAULT_LIMITS, reconcile_s=1.0))
    appender.submit(topic, Outgoing(b"first")).result(DEADLINE_S)
    relay.refuse_after_cut = True
    behind: list[Future[Appended]] = []
    relay.at_cut = lambda: behind.append(appender.submit(topic, Outgoing(b"behind")))
    relay.cut_after(b"COMMIT")
    unknown = appender.submit(topic, Outgoing(b"unknown"))
    with pytest.raises(AppendUnknown):
        unknown.result(DEADLINE_S)
    with pytest.raises(NotAppended, match="before this one"):
        behind[0].result(DEADLINE_S)
    assert _log(direct, topic) == [b"first", b"unknown"]
    relay.refuse_after_cut = relay.refusing = False
    assert appender.submit(topic, Outgoing(b"later")).result(DEADLINE_S) == Appended(0, 2)
    appender.close(DEADLINE_S)
    sessions.close()


def test_r3_a_connection_that_broke_before_the_commit_is_replaced(
    relay: CuttingRelay, cut_off: Journal, direct: Journal, topic: str
) -> None:
    relay.cut_before(b"INSERT INTO")
    assert append_all(cut_off, topic, [b"once"]) == [Appended(0, 1)]
    assert relay.cuts == 1
    assert _log(direct, topic) == [b"first", b"once"]


def test_r3_a_connection_that_broke_while_idle_is_replaced(
    database_url: str, cut_off: Journal, direct: Journal, topic: str
) -> None:
    with borrowed(database_url) as connection:
        end_sessions(connection, "cut off")
    assert append_all(cut_off, topic, [b"second"]) == [Appended(0, 1)]


def test_r3_records_behind_a_failed_group_do_not_overtake_it(
    relay: CuttingRelay, cut_off: Journal, direct: Journal, topic: str
) -> None:
    values = [str(number).encode() for number in range(2000)]
    relay.cut_before(b"COMMIT")
    futures = [cut_off.append(topic, Outgoing(value)) for value in values]
    failed = [isinstance(future.exception(DEADLINE_S), NotAppended) for future in futures]
    assert failed[0]
    assert failed == sorted(failed, reverse=True)
    log = _log(direct, topic)[1:]
    assert log == [value for value, not_there in zip(values, failed, strict=True) if not not_there]


def test_a_writer_paused_in_a_transaction_stops_others_only_for_a_while(
    database_url: str, direct: Journal, topic: str
) -> None:
    paused = SharedSession(database_url, "paused", APPENDER_TIMEOUTS)
    connection = paused.connection()
    connection.execute("BEGIN; UPDATE journal.partition SET next = next + 1")

    def goes_on() -> bool:
        with suppress(NotAppended):  # Postgres may end the paused one late
            return append_all(direct, topic, [b"goes on"]) == [Appended(0, 0)]
        return False

    eventually(goes_on, "an append")
    with pytest.raises(psycopg.Error):
        connection.execute("COMMIT")
    paused.close()
    assert _log(direct, topic) == [b"goes on"]


def test_a_journal_without_a_database_says_so_and_appends_nothing(relay: CuttingRelay) -> None:
    relay.refusing = True
    journal = open_journal(relay.url, client_name="alone")
    with pytest.raises(NotAppended):
        journal.append("any", Outgoing(b"x")).result(DEADLINE_S)
    journal.close()
