"""When a worker begins to claim, and that it does not spin."""

import threading
import time
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg import sql

from packhorse.db.engine import BadDatabaseUrl
from packhorse.errors import PackhorseError
from packhorse.jobs import declaring
from packhorse.jobs.consumer import Outcome
from packhorse.jobs.declaring import Declared
from packhorse.jobs.host import open_jobs
from packhorse.jobs.job import JobState
from packhorse.jobs.queue import QueueConfiguration, QueuesBusy, QueueType
from packhorse.jobs.work import worker
from tests.harness.jobs.hosted import FAST, hosted, registered, until
from tests.harness.jobs.waits import Waits
from tests.harness.postgres import Databases, end_sessions
from tests.harness.waiting import eventually

QUEUE = QueueConfiguration(
    "quick", ("test/**",), type=QueueType.UNORDERED, max_parallel=2, retry_delay_s=0.0
)


def test_a_worker_that_waits_for_a_consumer_to_end_does_not_spin(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_LAST_WORD_S", 118.0)  # of 120: it waits for two seconds
    refuses = Waits(stops=False)
    turns: list[bool] = []
    with hosted(database_url, {"test/**": refuses}, queues=[QUEUE], stop_s=120.0) as host:
        turn = host.worker._turn

        def counted(*, leaving: bool) -> float:
            turns.append(leaving)
            return turn(leaving=leaving)

        host.worker._turn = counted  # type: ignore[method-assign]
        host.jobs.add_job("test/a")
        refuses.await_begin()
        host.worker.hint()
    assert 1 <= turns.count(True) <= 100, "two seconds, and a turn every tenth at most"
    refuses.go_on.set()


def test_no_job_is_begun_before_the_queues_are_there(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or jobs that wait for an ordered queue would be done by the main one, side by side."""
    declare, allowed = declaring.declare_queue, threading.Event()

    def held_up(connection: Any, configuration: QueueConfiguration) -> bool:
        if not allowed.is_set():
            raise QueuesBusy("not yet")
        return declare(connection, configuration)

    monkeypatch.setattr(declaring, "declare_queue", held_up)
    monkeypatch.setattr(declaring, "_RETRY_S", 0.1)
    done = Waits(Outcome.OK, stops=False)
    done.go_on.set()
    host = open_jobs(
        database_url,
        None,
        consumers=registered({"test/**": done}),
        declared=Declared([QUEUE]),
        settings=FAST,
    )
    host.start()
    try:
        number = host.jobs.add_job("test/a").job.number
        eventually(lambda: host.worker.heartbeat.is_valid(time.monotonic()), what="a lease")
        assert host.jobs.get(number).state is JobState.QUEUED
        assert not done.jobs
        allowed.set()
        assert until(host, number, JobState.SUCCEEDED).queue == "quick"
    finally:
        host.stop(120)


def test_a_hint_is_followed_at_once(database_url: str) -> None:
    done = Waits(Outcome.OK, stops=False)
    done.go_on.set()
    seldom = replace(FAST, poll_s=3600.0)
    with hosted(database_url, {"test/**": done}, queues=[QUEUE], settings=seldom) as host:
        for topic in ("test/a", "test/new"):
            until(host, host.jobs.add_job(topic).job.number, JobState.SUCCEEDED)


def test_topics_take_turns_from_one_claim_to_the_next(database_url: str) -> None:
    done = Waits(Outcome.OK, stops=False)
    done.go_on.set()
    turns = replace(QUEUE, type=QueueType.TOPIC_ROUND_ROBIN, max_parallel=1)
    with hosted(database_url, {"test/**": done}, queues=[turns]) as host:
        host.jobs.suspend_queue("quick")
        numbers = [
            host.jobs.add_job(topic).job.number
            for topic in ("test/a", "test/a", "test/b", "test/b")
        ]
        host.jobs.resume_queue("quick")
        for number in numbers:
            until(host, number, JobState.SUCCEEDED)
    assert [job.topic for job in done.jobs] == ["test/a", "test/b", "test/a", "test/b"]


def test_a_worker_outlives_a_database_that_is_read_only_for_a_while(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "retry_pause_s", lambda _: 0.01)
    waits = Waits(Outcome.OK, stops=False)
    with (
        hosted(database_url, {"test/**": waits}, queues=[QUEUE]) as host,
        psycopg.connect(database_url, autocommit=True) as admin,
    ):
        number = host.jobs.add_job("test/a").job.number
        waits.await_begin()
        database = sql.Identifier(admin.info.dbname)
        for allowed in ("on", "off"):
            change = sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = {}")
            admin.execute(change.format(database, sql.SQL(allowed)))
            end_sessions(admin)
            if allowed == "on":
                waits.go_on.set()
                eventually(lambda: host.worker._failures > 10, what="it has failed very often")
        until(host, number, JobState.SUCCEEDED)


@pytest.mark.parametrize("url", ["mysql://x", "postgresql://localhost:x/a", "nonsense"])
def test_what_is_no_url_of_a_database_is_refused_at_once(url: str) -> None:
    with pytest.raises(BadDatabaseUrl, match="postgresql://"):
        open_jobs(url, None, consumers=registered({}))


def test_a_database_that_is_none_of_packhorses_is_an_error_that_says_what_to_run(
    databases: Databases,
) -> None:
    empty = databases.server.ensure_database("nobody_has_migrated")
    older = databases.new()
    with psycopg.connect(older) as connection:
        connection.execute("UPDATE packhorse_schema SET version_num = '0001'")
    for url, reported in (
        (empty, "no schema of packhorse.*packhorse-jobs"),
        (older, "schema 0001 of packhorse.*packhorse-jobs"),
        (databases.server.url("missing"), '"missing" does not exist'),
        ("postgresql://nobody:secret@127.0.0.1:1/a", "is it running"),
    ):
        host = open_jobs(url, None, consumers=registered({}))
        with pytest.raises(PackhorseError, match=reported) as refused:
            host.start()
        host.stop(1.0)
        assert "secret" not in str(refused.value)
