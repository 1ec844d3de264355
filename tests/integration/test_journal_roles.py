"""Logins of a journal in PostgreSQL: each program appends to its own topics (docs/security.md)."""

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from urllib.parse import urlsplit

import psycopg
import pytest

from packhorse.messaging.api import (
    Appended,
    Journal,
    JournalUnavailable,
    LogEnd,
    NotAppended,
    Outgoing,
    TopicMissing,
)
from packhorse.messaging.sql.journal import SqlJournal
from packhorse.messaging.sql.segments import SegmentLimits, SqlSegment, create_segment
from packhorse.messaging.sql.session import SharedSession
from packhorse.messaging.topics import standard_topics
from packhorse.wire.topics import Topics
from packhorse_services.cli.app import run
from packhorse_services.cli.topics import provision as topics
from packhorse_services.cli.topics.provision import Login
from tests.harness.deployment import ROOT
from tests.harness.journal_logins import JournalLogins, is_refused
from tests.harness.journals import read_until
from tests.harness.postgres import Databases
from tests.harness.site import site
from tests.harness.waiting import eventually

TOPICS = Topics()
ALL = [spec.name for spec in standard_topics(TOPICS)]
APPENDED = {
    Login.PUBLISHER: {TOPICS.package, TOPICS.command, TOPICS.event},
    Login.SUBSCRIBER: {TOPICS.status, TOPICS.discovery},
    Login.PIPELINE: set[str](),
}
_DOCUMENT = ROOT / "docs" / "security.md"
_LIMITS = SegmentLimits(records=2)

Urls = dict[str, str]


@pytest.fixture
def urls(journal_logins: JournalLogins) -> Urls:
    """A new journal's URL by login."""
    return journal_logins.new()


@pytest.fixture
def granted(urls: Urls) -> Urls:
    """The same with topics, a segment in each, and what the documented commands grant."""
    assert topics.create(urls["journal_owner"], TOPICS) == []
    with closing(SqlJournal(urls["journal_owner"], "tests", _LIMITS)) as owner:
        for topic in ALL:
            owner.append(topic, Outgoing(b"owner")).result(120)
    documented = re.findall(r"^packhorse (topics grant .*)$", _DOCUMENT.read_text(), re.M)
    assert len(documented) == len(Login)
    for command in documented:
        assert run([*command.split(), "--journal", urls["journal_owner"]]) == 0
    return urls


def appends(journal: Journal, topic: str, count: int = 1) -> list[Appended]:
    return [journal.append(topic, Outgoing(b"new")).result(120) for _ in range(count)]


def size(journal: Journal, topic: str) -> int:
    bounds = journal.bounds(topic)
    return bounds.next - bounds.oldest


@pytest.mark.parametrize("program", Login)
def test_a_login_reads_all_and_appends_to_its_own_topics(granted: Urls, program: Login) -> None:
    with closing(SqlJournal(granted[program], program, _LIMITS)) as journal:
        journal.create_topics(standard_topics(TOPICS))
        assert journal.check_topics(standard_topics(TOPICS)) == []
        for topic in ALL:
            if topic in APPENDED[program]:
                assert [each.offset for each in appends(journal, topic, 5)] == [1, 2, 3, 4, 5]
                assert journal.bounds(topic, after_appends=True).next == 6
            else:
                with pytest.raises(NotAppended, match=f"may not append to {topic}; `packhorse to"):
                    appends(journal, topic)
                assert size(journal, topic) == 1
            with pytest.raises(JournalUnavailable, match="refuses this login"):
                journal.truncate(topic, 1)
    for reading in ("journal_owner", *Login):  # the segments that the program began, too
        with closing(SqlJournal(granted[reading], reading, _LIMITS)) as journal:
            for topic in ALL:
                with journal.reader(topic, LogEnd.OLDEST) as reader:
                    assert len(read_until(reader, size(journal, topic))) == size(journal, topic)


def test_both_append_to_segments_that_the_other_has_begun(granted: Urls) -> None:
    with (
        closing(SqlJournal(granted["journal_owner"], "owner", _LIMITS)) as owner,
        closing(SqlJournal(granted[Login.SUBSCRIBER], "subscriber", _LIMITS)) as subscriber,
    ):
        for number in range(1, 13, 2):  # segments of two records
            assert appends(subscriber, TOPICS.status, 1)[0].offset == number
            assert appends(owner, TOPICS.status, 1)[0].offset == number + 1
        owner.truncate(TOPICS.status, 13)
        assert appends(subscriber, TOPICS.status)[0].offset == 13


_PARTITION = (
    "(SELECT p.id FROM journal.partition p JOIN journal.topic t ON t.id = p.topic_id WHERE {})"
)
_FOREIGN = _PARTITION.format("t.name = 'aemdistribution_package'")
_OWN = _PARTITION.format("t.name = 'aemdistribution_status'")
_MOVE = "UPDATE journal.partition SET next = next + 1 WHERE id = "


_REFUSED = (
    "INSERT INTO journal.records_{foreign}_0 VALUES (1, 1, 1, NULL, '', '')",
    "UPDATE journal.records_{foreign}_0 SET body = ''",
    "DELETE FROM journal.records_{own}_0",
    "TRUNCATE journal.records_{own}_0",
    "DROP TABLE journal.records_{own}_0",
    "INSERT INTO journal.segment VALUES ({foreign}, 1, 1)",
    "DELETE FROM journal.segment",
    "UPDATE journal.partition SET oldest = 1 WHERE id = {own}",
    "UPDATE journal.partition SET segment_start = 1 WHERE id = {own}",
    "UPDATE journal.partition SET topic_id = topic_id WHERE id = {own}",
    "DELETE FROM journal.partition",
    "INSERT INTO journal.partition (topic_id, number) SELECT id, 7 FROM journal.topic",
    "INSERT INTO journal.appender SELECT id, 'subscriber' FROM journal.topic",
    "UPDATE journal.topic SET retention_ms = 0",
    "CREATE TABLE journal.records_{foreign}_1 (LIKE journal.record)",
    "CREATE POLICY mine ON journal.partition USING (true)",
    "ALTER TABLE journal.partition DISABLE ROW LEVEL SECURITY",
    "SELECT journal.begin_segment({foreign}, 0, 1)",
    "SELECT journal.begin_segment({own}, 0, 1)",  # this transaction has moved no counter
    "LOCK TABLE journal.partition IN EXCLUSIVE MODE",
    "SET ROLE journal_owner",
    "SET ROLE packhorse_bookkeeper; SELECT FROM journal.topic",
)


def test_raw_sql_of_a_subscriber_is_refused(granted: Urls) -> None:
    with psycopg.connect(granted[Login.SUBSCRIBER], autocommit=True) as connection:
        [[foreign, own]] = connection.execute(f"SELECT {_FOREIGN}, {_OWN}").fetchall()
        done = [
            statement
            for statement in _REFUSED
            if not is_refused(connection, statement.format(foreign=foreign, own=own))
        ]
    assert done == []


def test_raw_sql_of_a_subscriber_moves_no_other_counter(granted: Urls) -> None:
    with psycopg.connect(granted[Login.SUBSCRIBER]) as connection:
        assert connection.execute(_MOVE + _FOREIGN).rowcount == 0
        assert connection.execute(f"{_MOVE}{_OWN}").rowcount == 1
        for start in (0, 2):  # the transaction has taken offset 1
            with (
                pytest.raises(psycopg.errors.InvalidParameterValue),
                connection.transaction(),
            ):
                connection.execute(f"SELECT journal.begin_segment({_OWN}, {start}, 1)")
        connection.execute(f"SELECT journal.begin_segment({_OWN}, 1, 1)")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(f"SELECT journal.begin_segment({_FOREIGN}, 1, 1)")


def test_a_segment_is_begun_for_no_other_topic_even_without_the_policy(granted: Urls) -> None:
    with psycopg.connect(granted["journal_owner"]) as owner:
        owner.execute("ALTER TABLE journal.partition DISABLE ROW LEVEL SECURITY")
    with psycopg.connect(granted[Login.SUBSCRIBER]) as connection:
        assert connection.execute(_MOVE + _FOREIGN).rowcount == 1
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(f"SELECT journal.begin_segment({_FOREIGN}, 1, 1)")


def test_who_was_granted_nothing_does_not_enter(granted: Urls) -> None:
    with (
        closing(SqlJournal(granted["stranger"], "stranger")) as journal,
        pytest.raises(JournalUnavailable, match="permission denied for database"),
    ):
        journal.bounds(TOPICS.package)


def test_a_grant_replaces_the_one_before_in_all_segments(granted: Urls) -> None:
    owner, url = granted["journal_owner"], granted[Login.SUBSCRIBER]
    assert run(["topics", "grant", "subscriber", "--as", "pipeline", "--journal", owner]) == 0
    with closing(SqlJournal(url, "tests")) as journal, pytest.raises(NotAppended):
        appends(journal, TOPICS.status)
    with psycopg.connect(url) as connection:
        [[own]] = connection.execute(f"SELECT {_OWN}").fetchall()
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(f"INSERT INTO journal.records_{own}_0 VALUES (1, 1, 1, '', '', '')")
    with psycopg.connect(url) as connection:
        assert connection.execute(_FUNCTIONS).fetchall() == []
    for _ in range(2):
        assert run(["topics", "grant", "subscriber", "--as", "subscriber", "--journal", owner]) == 0
    with closing(SqlJournal(url, "tests")) as journal:
        assert appends(journal, TOPICS.status)[0].offset == 1


_FUNCTIONS = """
    SELECT proname FROM pg_proc
    WHERE pronamespace = 'journal'::regnamespace AND has_function_privilege(oid, 'EXECUTE')
"""


def _grant_meanwhile(granted: Urls, *statements: str) -> None:
    """Have a grant wait for a transaction of these, which is committed then."""
    owner = granted["journal_owner"]
    with (
        psycopg.connect(owner) as first,
        psycopg.connect(owner, autocommit=True) as watch,
        ThreadPoolExecutor() as threads,
    ):
        for statement in statements:
            first.execute(statement)
        granting = threads.submit(topics.grant, owner, TOPICS, "stranger", Login.SUBSCRIBER)
        eventually(lambda: granting.done() or watch.execute(_WAITING).fetchall(), what="a lock")
        first.commit()
        granting.result(120)


def test_a_grant_waits_for_the_segment_that_is_begun_meanwhile(granted: Urls) -> None:
    _grant_meanwhile(granted, _MOVE + _FOREIGN, f"SELECT journal.begin_segment({_FOREIGN}, 1, 1)")
    with psycopg.connect(granted["stranger"]) as connection:
        [[foreign]] = connection.execute(f"SELECT {_FOREIGN}").fetchall()
        connection.execute(f"SELECT FROM journal.records_{foreign}_1")


def test_a_grant_waits_for_the_segment_that_is_dropped_meanwhile(granted: Urls) -> None:
    with psycopg.connect(granted["journal_owner"]) as connection:
        [[foreign]] = connection.execute(f"SELECT {_FOREIGN}").fetchall()
    forgotten = f"DELETE FROM journal.segment WHERE partition_id = {foreign}"
    _grant_meanwhile(granted, forgotten, f"DROP TABLE journal.records_{foreign}_0")


_WAITING = """
    SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()
"""


def test_a_role_that_was_dropped_keeps_nobody_from_appending(
    granted: Urls, databases: Databases
) -> None:
    database = urlsplit(granted["journal_owner"]).path[1:]
    with psycopg.connect(databases.server.url(database), autocommit=True) as superuser:
        superuser.execute("CREATE ROLE leaving")
        topics.grant(granted["journal_owner"], TOPICS, "leaving", Login.SUBSCRIBER)
        superuser.execute("DROP OWNED BY leaving")
        superuser.execute("DROP ROLE leaving")
    with closing(SqlJournal(granted[Login.SUBSCRIBER], "tests", _LIMITS)) as journal:
        assert [each.offset for each in appends(journal, TOPICS.status, 5)] == [1, 2, 3, 4, 5]


def test_without_the_tables_of_this_release_create_is_named(granted: Urls) -> None:
    with psycopg.connect(granted["journal_owner"]) as owner:
        owner.execute("DROP FUNCTION journal.begin_segment")
    with closing(SqlJournal(granted["journal_owner"], "tests")) as journal:
        (fault,) = journal.check_topics(standard_topics(TOPICS))
        assert "`packhorse topics create` makes them" in fault
    with (
        closing(SharedSession(granted["journal_owner"], "tests")) as session,
        pytest.raises(JournalUnavailable, match="`packhorse topics create"),
        session.use() as connection,
    ):
        create_segment(connection, SqlSegment(1, 1), 1)


def test_a_topic_that_was_removed_is_missing_still(granted: Urls) -> None:
    with closing(SqlJournal(granted[Login.SUBSCRIBER], "tests", _LIMITS)) as journal:
        appends(journal, TOPICS.status)
        with psycopg.connect(granted["journal_owner"]) as owner:
            owner.execute("DELETE FROM journal.topic WHERE name = %s", (TOPICS.status,))
        with pytest.raises(TopicMissing):
            appends(journal, TOPICS.status)


def test_programs_work_with_a_login_each(urls: Urls, databases: Databases) -> None:
    with site(databases, urls[Login.PUBLISHER]) as running:
        prefix = running.publisher.environment["PACKHORSE_TOPIC_PREFIX"]
        topics.create(urls["journal_owner"], Topics.named(prefix, {}))
        for program in (Login.PUBLISHER, Login.SUBSCRIBER):
            topics.grant(urls["journal_owner"], Topics.named(prefix, {}), program, program)
        running.subscriber("sub1", journal_url=urls[Login.SUBSCRIBER])
        running.start()
        running.put("/roles")
        running.put("/roles/below", properties={"title": "both"})
        running.distribute_everywhere(deep=["/roles"])
        assert running.at("sub1", "/roles/below") is not None
        assert len(set(running.hashes("/roles").values())) == 1
