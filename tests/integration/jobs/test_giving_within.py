"""Giving a job in the caller's own transaction: it commits with it, and leaves it as it was."""

import psycopg
import pytest
from psycopg import Connection, IsolationLevel, pq
from psycopg.rows import dict_row

from packhorse.db.metadata import IMPORTER
from packhorse.db.roles import act_as
from packhorse.jobs.ledger.topics import forget_topics
from packhorse.jobs.names import InvalidName, InvalidProperties
from packhorse.jobs.store.adding import AddResult, InvalidJob
from packhorse.jobs.store.given import NewJob
from packhorse.jobs.store.queues import learn_topics
from packhorse.runtime import tracing
from tests.harness.jobs.stored import bookkeeper, jobs_of


def role_of(connection: Connection) -> str:
    [(role,)] = connection.execute("SELECT current_setting('role')").fetchall()
    return str(role)


def test_a_job_is_there_when_the_callers_transaction_commits(database_url: str) -> None:
    jobs = jobs_of(database_url)
    with psycopg.connect(database_url) as connection:
        # The caller's transaction has not begun yet: giving a job must not commit it.
        added = jobs.add_job("a/b", {"n": 1}, connection=connection)
        assert connection.info.transaction_status is pq.TransactionStatus.INTRANS
        assert jobs.count() == 0
        connection.commit()
    assert jobs.get(added.job.number).properties == {"n": 1}


def test_a_job_goes_with_the_callers_transaction(database_url: str) -> None:
    jobs = jobs_of(database_url)
    with psycopg.connect(database_url) as connection:
        connection.execute("CREATE TEMP TABLE work (n int) ON COMMIT PRESERVE ROWS")
        connection.commit()
        connection.execute("INSERT INTO work VALUES (1)")
        jobs.add_job("a/b", connection=connection)
        connection.rollback()
        assert connection.execute("SELECT count(*) FROM work").fetchall() == [(0,)]
    assert jobs.count() == 0


def test_the_callers_role_and_rows_are_as_before(database_url: str) -> None:
    jobs = jobs_of(database_url)
    with psycopg.connect(database_url, row_factory=dict_row) as connection:
        with connection.transaction():
            act_as(connection, IMPORTER)
            jobs.add_job("a/b", connection=connection)
            row = connection.execute("SELECT current_setting('role') AS role").fetchone()
            assert row == {"role": IMPORTER}
        row = connection.execute("SELECT current_setting('role') AS role").fetchone()
        assert row == {"role": "none"}
    assert jobs.count() == 1


def test_a_job_that_is_refused_leaves_the_transaction_usable(database_url: str) -> None:
    jobs = jobs_of(database_url)
    with psycopg.connect(database_url) as connection:
        act_as(connection, IMPORTER)
        for broken in (NewJob("a//b"), NewJob("a", {"a": "x" * 70_000}), NewJob("a", priority=101)):
            with pytest.raises((InvalidName, InvalidProperties, InvalidJob)):
                jobs.add_jobs([broken], connection=connection)
        assert role_of(connection) == IMPORTER
        act_as(connection, "none")
        jobs.add_job("a/b", connection=connection)
        connection.commit()
    assert jobs.count() == 1


@pytest.mark.parametrize(
    "level", [IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE], ids=lambda one: one.name
)
def test_an_older_snapshot_loses_no_job(database_url: str, level: IsolationLevel) -> None:
    """It still shows a topic that is forgotten, and nobody claims a job without its topic."""
    jobs = jobs_of(database_url)
    with bookkeeper(database_url) as learning:
        learn_topics(learning, ["old"])
    with psycopg.connect(database_url) as connection:
        connection.isolation_level = level
        connection.execute("SELECT 1")
        assert forget_topics(lambda: psycopg.connect(database_url), idle_s=0) == 1
        with pytest.raises(InvalidJob, match=f"{level.name.replace('_', ' ')}.* READ COMMITTED"):
            jobs.add_job("old", connection=connection)
        connection.execute("SELECT 1")
        connection.commit()
    assert jobs.count() == 0
    assert jobs.add_job("old").job.queue == "main"


def test_a_connection_in_autocommit_gives_at_once(database_url: str) -> None:
    jobs = jobs_of(database_url)
    with psycopg.connect(database_url, autocommit=True) as connection:
        jobs.add_job("a/b", connection=connection)
        assert jobs.count() == 1
        assert role_of(connection) == "none"


def test_several_are_given_or_none(database_url: str) -> None:
    jobs = jobs_of(database_url)
    with pytest.raises(InvalidName):
        jobs.add_jobs([NewJob("a"), NewJob("a b")])
    assert jobs.count() == 0
    added = jobs.add_jobs([NewJob("a", id="1"), NewJob("b"), NewJob("a", id="1")])
    assert [one.verdict for one in added] == [AddResult.ADDED, AddResult.ADDED, AddResult.UPDATED]
    assert jobs.count() == 2


def test_a_job_carries_the_trace_of_who_gave_it(database_url: str) -> None:
    jobs = jobs_of(database_url)
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    assert jobs.add_job("a").job.traceparent is None
    with tracing.continued({tracing.TRACEPARENT: parent.encode()}):
        carried = jobs.add_job("a").job.traceparent
    assert carried is not None
    assert carried.split("-")[1] == parent.split("-")[1]


def test_giving_it_again_is_seen_in_the_facade(database_url: str) -> None:
    one, other = jobs_of(database_url, "one"), jobs_of(database_url, "other")
    first = one.add_job("a", {"n": 1}, id="x")
    assert other.add_job("a", {"n": 2}, id="x").verdict is AddResult.EXISTING
    again = one.add_job("a", {"n": 3}, id="x")
    assert (again.verdict, again.job.number) == (AddResult.UPDATED, first.job.number)
    assert one.get_by_id("a", "x").properties == {"n": 3}
