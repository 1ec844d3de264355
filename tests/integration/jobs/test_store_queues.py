"""Queues in the database: declared, changed, removed; and statements that keep to their indexes."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from packhorse.jobs.queue import (
    MAIN,
    InvalidQueue,
    QueueChanged,
    QueueConfiguration,
    QueuesBusy,
    QueueType,
    UnknownQueue,
)
from packhorse.jobs.store import claim_statements, ending_rows, queues
from packhorse.jobs.store.adding import add_job, add_jobs
from packhorse.jobs.store.claims import ClaimRequest, _heads, _of
from packhorse.jobs.store.given import NewJob
from packhorse.jobs.store.queues import (
    declare_queue,
    get_queue,
    put_queue,
    read_layout,
    read_queues,
    remove_queue,
    suspend_queue,
)
from tests.harness.jobs.store import Store
from tests.harness.postgres import waiting_for_locks
from tests.harness.waiting import eventually

MOST_ROWS = 500


@pytest.fixture
def store(database_url: str) -> Store:
    return Store(database_url)


def test_the_rest_has_a_queue(store: Store) -> None:
    assert store.add("something/else").job.queue == MAIN
    with store.transaction() as connection:
        assert [queue.name for queue in read_queues(connection)] == ["free", "line", MAIN, "turns"]


def test_what_an_operator_changed_is_not_declared_away(store: Store) -> None:
    free = QueueConfiguration("free", ("free/*",), type=QueueType.UNORDERED, max_retries=7)
    with store.transaction() as connection:
        assert put_queue(connection, free).version == 2
        assert not declare_queue(connection, QueueConfiguration("free", ("other/*",)))
        assert get_queue(connection, "free").configuration == free


def test_a_changed_queue_takes_the_jobs_that_wait(store: Store) -> None:
    number = store.add("free/a").job.number
    worker = store.worker()
    with store.transaction() as connection:
        put_queue(connection, QueueConfiguration("special", ("free/a",), max_retries=9))
    job = store.job(number)
    assert (job.queue, job.max_retries, worker.claim("free")) == ("special", 9, [])
    with store.transaction() as connection:
        remove_queue(connection, "special")
        assert read_layout(connection).topics == {"free/a": "free"}
    [claimed] = worker.claim("free")
    assert (claimed.job.number, claimed.job.queue) == (number, "free")


def test_a_run_that_knows_an_old_type_claims_nothing(store: Store) -> None:
    store.add("free/a")
    with store.transaction() as connection:
        put_queue(connection, QueueConfiguration("free", ("free/*",)))
    worker = store.worker()
    assert worker.claim("free", type=QueueType.UNORDERED) == []
    assert worker.claim("free", type=QueueType.TOPIC_ROUND_ROBIN) == []
    assert len(worker.claim("free")) == 1


def test_versions(store: Store) -> None:
    mail = QueueConfiguration("mail", ("mail/**",))
    with store.transaction() as connection:
        assert put_queue(connection, mail, 0).version == 1
        with pytest.raises(QueueChanged):
            put_queue(connection, mail, 0)
        with pytest.raises(QueueChanged):
            suspend_queue(connection, "mail", suspended=True, version=2)
        suspended = suspend_queue(connection, "mail", suspended=True, version=1)
        assert (suspended.suspended, suspended.version) == (True, 2)
        assert suspend_queue(connection, "mail", suspended=True).version == 2
        with pytest.raises(QueueChanged):
            remove_queue(connection, "mail", 1)
        remove_queue(connection, "mail", 2)


def test_what_cannot_be_done_with_queues(store: Store) -> None:
    with store.transaction() as connection:
        with pytest.raises(InvalidQueue):
            remove_queue(connection, MAIN)
        with pytest.raises(InvalidQueue):
            put_queue(connection, QueueConfiguration(MAIN, ("a/**",)))
        for act in (get_queue, remove_queue):
            with pytest.raises(UnknownQueue):
                act(connection, "nothing")
        with pytest.raises(UnknownQueue):
            suspend_queue(connection, "nothing", suspended=True)


def test_a_queue_is_not_changed_while_a_new_topic_gets_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "_PATIENCE", "50ms")
    with store.transaction() as giving:
        add_job(giving, "me", NewJob("free/new"))
        with store.transaction() as connection, pytest.raises(QueuesBusy):
            put_queue(connection, QueueConfiguration("free", ("free/*",)))


def test_two_that_give_the_same_id_at_once_give_one_job(store: Store) -> None:
    store.add("free/a")
    with store.transaction() as first:
        [one] = add_jobs(first, "me", [NewJob("free/a", id="x")])
        added = []
        thread = threading.Thread(target=lambda: added.append(store.add("free/a", "you", id="x")))
        thread.start()
        eventually(lambda: waiting_for_locks(store.url), what="the other one waits")
        first.commit()
        thread.join()
    assert [(other.verdict.value, other.job.number) for other in added] == [
        ("EXISTING", one.job.number)
    ]


CLAIM_REQUEST = ClaimRequest("free", ["free/a"], 20, type=QueueType.UNORDERED)
LINE = ClaimRequest("line", ["line/a"], 1, type=QueueType.ORDERED)


@contextmanager
def amid_many(store: Store) -> Iterator[tuple[Connection, dict[str, Any]]]:
    """Give a transaction that claims among many jobs that were there after the plans were made."""
    store.add("free/a"), store.add("free/other"), store.add("line/a"), store.add("line/b")
    worker = store.worker()
    with store.transaction() as connection:
        connection.execute(
            """
            INSERT INTO jobs.job (number, turn, topic, application, created_at, ready_at, only_on)
            SELECT n, n, (%s::text[])[1 + n %% 4], 'bulk', now(), now(), CASE WHEN n %% 8 < 4
                THEN '' ELSE 'elsewhere' END
            FROM (SELECT nextval('jobs.number') AS n FROM generate_series(1, 20000)) g
            """,
            (["free/a", "free/other", "line/a", "line/b"],),
        )
    given = {"runtime_id": worker.run.runtime_id, "instance": "i1"}
    given |= {"places_for": ["", "i1"], "led": []}
    with store.transaction() as connection:
        connection.execute(claim_statements.PREPARE)
        yield connection, given


def rows_read(plan: dict[str, Any]) -> float:
    """Return how many rows the scans of jobs have met, also those that they left out."""
    own = 0.0
    if plan.get("Relation Name") == "job":
        met = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
        own = met * plan["Actual Loops"]
    return own + sum(rows_read(child) for child in plan.get("Plans", []))


def met(connection: Connection, statement: str, given: Any) -> float:
    query = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"
    [([explained],)] = connection.execute(query.encode(), given).fetchall()
    return rows_read(explained["Plan"])


def test_a_claim_meets_few_rows_however_many_wait(store: Store) -> None:
    with amid_many(store) as (connection, given):
        unordered = claim_statements.OF_TYPE[QueueType.UNORDERED]
        assert 20 <= met(connection, unordered, given | _of(CLAIM_REQUEST)) < MOST_ROWS
        assert met(connection, claim_statements.HEADS, given | _heads([LINE])) < MOST_ROWS
        assert met(connection, claim_statements.CLAIM_HEADS, given | _heads([LINE])) < MOST_ROWS
        for statement in (claim_statements.PROMOTE, claim_statements.OPEN):
            assert met(connection, statement, {"topics": ["free/a", "line/a"]}) < MOST_ROWS


def test_an_end_and_a_rescue_meet_few_rows_however_many_wait(store: Store) -> None:
    with amid_many(store) as (connection, given):
        claimed = connection.execute(
            claim_statements.OF_TYPE[QueueType.UNORDERED].encode(), given | _of(CLAIM_REQUEST)
        )
        numbers = [row[0] for row in claimed]
        run = given["runtime_id"]
        assert len(numbers) == 20
        ends = (numbers, [run] * 20, [1] * 20)
        assert met(connection, ending_rows._LOCK_CLAIMED, ends) < MOST_ROWS
        connection.execute("UPDATE jobs.worker SET lease_until = '-infinity'")
        assert 20 <= met(connection, ending_rows._LOCK_LOST, (100,)) < MOST_ROWS


@pytest.mark.proof
def test_a_plan_that_reads_all_is_noticed(store: Store) -> None:
    with amid_many(store) as (connection, given):
        connection.execute(
            "SELECT set_config('enable_seqscan', 'on', true), "
            "set_config('enable_indexscan', 'off', true)"
        )
        unordered = claim_statements.OF_TYPE[QueueType.UNORDERED]
        assert met(connection, unordered, given | _of(CLAIM_REQUEST)) > MOST_ROWS


def test_the_jobs_schema_is_the_bookkeepers(store: Store) -> None:
    with store.transaction() as connection:
        connection.execute("RESET ROLE")
        connection.execute("SET LOCAL ROLE packhorse_importer")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT FROM jobs.job")
