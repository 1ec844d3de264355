"""Giving jobs: a topic and an id are one job."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from psycopg.errors import SerializationFailure

from packhorse.jobs.consumer import Outcome
from packhorse.jobs.job import JobState
from packhorse.jobs.names import InvalidName, InvalidProperties
from packhorse.jobs.queue import TooManyTopics
from packhorse.jobs.store import adding, queues
from packhorse.jobs.store.adding import AddResult, InvalidJob, JobsBusy, add_jobs, requeue_finished
from packhorse.jobs.store.given import NewJob
from tests.harness.jobs.store import Store


@pytest.fixture
def store(database_url: str) -> Store:
    return Store(database_url)


def test_a_job_as_it_is_given(store: Store) -> None:
    at = datetime(2100, 1, 1, tzinfo=UTC)
    added = store.add(
        "free/a", "me", properties={"x": [1]}, id="ä 1", priority=-100, ready_at=at, only_on="i1"
    )
    job = added.job
    assert added.verdict is AddResult.ADDED
    assert (job.topic, job.id, job.queue, job.priority) == ("free/a", "ä 1", "free", -100)
    assert (job.properties, job.application, job.ready_at) == ({"x": [1]}, "me", at)
    assert (job.state, job.attempts, job.max_retries, job.only_on) == (JobState.QUEUED, 0, 2, "i1")
    assert store.job(job.number) == job


def test_without_an_id_each_is_a_job(store: Store) -> None:
    assert len({store.add("free/a").job.number for _ in range(3)}) == 3


@pytest.mark.parametrize(
    ("application", "verdict", "properties"),
    [
        ("me", AddResult.UPDATED, {"n": 2}),
        ("you", AddResult.EXISTING, {"n": 1}),
        ("", AddResult.EXISTING, {"n": 1}),
    ],
)
def test_given_again_while_it_waits(
    store: Store, application: str, verdict: AddResult, properties: dict[str, int]
) -> None:
    store.add("free/a", "me", id="x", properties={"n": 1})
    again = store.add("free/a", application, id="x", properties={"n": 2})
    assert (again.verdict, again.job.properties) == (verdict, properties)


def test_nobody_in_particular_never_changes_what_is_there(store: Store) -> None:
    store.add("free/a", "", id="x")
    assert store.add("free/a", "", id="x").verdict is AddResult.EXISTING


def test_given_again_while_it_is_done_it_runs_once_more(store: Store) -> None:
    number = store.add("free/a", "me", id="x", properties={"n": 1}).job.number
    worker = store.worker()
    [first] = worker.claim("free")
    again = store.add("free/a", "me", id="x", properties={"n": 2})
    assert (again.verdict, again.job.number) == (AddResult.REACTIVATED, number)
    assert worker.end(first).state is JobState.QUEUED
    [second] = worker.claim("free")
    assert (second.job.properties, second.job.attempts, second.job.retry) == ({"n": 2}, 1, False)
    assert worker.end(second).state is JobState.SUCCEEDED


def test_given_again_when_it_is_history(store: Store) -> None:
    number = store.add("free/a", "me", id="x").job.number
    worker = store.worker()
    worker.end(worker.claim("free")[0])
    assert store.add("free/a", "you", id="x").verdict is AddResult.EXISTING
    again = store.add("free/a", "me", id="x", properties={"n": 2})
    assert (again.verdict, again.job.number) == (AddResult.REACTIVATED, number)
    assert (again.job.state, again.job.attempts) == (JobState.QUEUED, 0)
    assert len(worker.claim("free")) == 1


def test_a_job_that_becomes_history_while_it_is_given_is_still_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = store.add("free/a", "me", id="x").job.number
    worker = store.worker()
    [claimed] = worker.claim("free")
    insert = adding.insert

    def late(*given: Any) -> dict[int, int]:
        monkeypatch.setattr(adding, "insert", insert)
        worker.end(claimed)
        return insert(*given)

    monkeypatch.setattr(adding, "insert", late)
    with store.transaction() as connection:
        twice = add_jobs(connection, "you", [NewJob("free/a", id="x"), NewJob("free/a", id="x")])
    known = (AddResult.EXISTING, number)
    assert [(one.verdict, one.job.number) for one in twice] == [known, known]
    assert store.rows("SELECT FROM jobs.job") == []


def test_a_job_that_comes_and_goes_all_the_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adding, "insert", lambda *_: {})
    monkeypatch.setattr(adding, "renew_properties", lambda *_: {})
    with pytest.raises(JobsBusy):
        store.add("free/a", id="x")


def test_many_at_once_keep_their_order(store: Store) -> None:
    jobs = [NewJob(f"free/{n % 3}", {"n": n}, id=str(n % 40)) for n in range(80)]
    with store.transaction() as connection:
        added = add_jobs(connection, "me", jobs)
    assert [one.verdict for one in added[:40]] == [AddResult.ADDED] * 40
    fresh = [one.job.number for one in added if one.verdict is AddResult.ADDED]
    assert fresh == sorted(fresh)
    assert [one.job.topic for one in added] == [job.topic for job in jobs]


def test_what_is_rolled_back_was_never_given(store: Store) -> None:
    with store.transaction() as connection:
        add_jobs(connection, "me", [NewJob("free/a", id="x")])
        connection.rollback()
    assert store.rows("SELECT FROM jobs.job") == store.rows("SELECT FROM jobs.event") == []


def test_history_is_given_back_to_the_queue(store: Store) -> None:
    worker = store.worker()
    number = store.add("free/a", properties={"n": 1}).job.number
    [claimed] = worker.claim("free")
    with store.transaction() as connection:
        assert requeue_finished(connection, [number]) == []
    worker.end(claimed, Outcome.CANCEL)
    with store.transaction() as connection:
        [job] = requeue_finished(connection, [number, 999])
    assert (job.number, job.state, job.retry, job.properties) == (
        number,
        JobState.QUEUED,
        True,
        {"n": 1},
    )


@pytest.mark.parametrize(
    ("error", "given"),
    [
        (InvalidName, {"topic": "a b"}),
        (InvalidName, {"id": ""}),
        (InvalidName, {"id": "x" * 256}),
        (InvalidName, {"only_on": "\n"}),
        (InvalidProperties, {"properties": {"x": "y" * 65_536}}),
        (InvalidProperties, {"properties": {"x": object()}}),
        (InvalidJob, {"priority": 101}),
        (InvalidJob, {"priority": -101}),
        (InvalidJob, {"max_retries": -2}),
        (InvalidJob, {"ready_at": datetime(2100, 1, 1)}),  # noqa: DTZ001
        (InvalidJob, {"ready_at": datetime.now(UTC), "delay": timedelta(1)}),
        (InvalidJob, {"delay": timedelta(seconds=-1)}),
        (InvalidJob, {"delay": timedelta(days=10_000)}),
        (InvalidJob, {"traceparent": "x"}),
    ],
)
def test_what_nobody_can_give(store: Store, error: type[Exception], given: dict[str, Any]) -> None:
    with pytest.raises(error):
        store.add(**{"topic": "free/a", **given})
    with pytest.raises(InvalidJob):
        store.add("free/a", "x" * 256)


def test_topics_are_kinds_of_work(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "MOST_TOPICS", 2)
    store.add("free/a"), store.add("free/b"), store.add("free/a")
    with pytest.raises(TooManyTopics):
        store.add("free/c")


def test_a_snapshot_that_is_too_old_is_refused(store: Store) -> None:
    with store.transaction() as connection:
        connection.execute("SELECT FROM jobs.job")
        connection.rollback()
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT FROM jobs.job")
        store.add("free/a", id="x")
        with pytest.raises((SerializationFailure, JobsBusy)):
            add_jobs(connection, "you", [NewJob("free/a", id="x")])


def test_added_is_reported(store: Store) -> None:
    number = store.add("free/a", "me").job.number
    [(topic, application, properties)] = store.rows(
        "SELECT topic, application, properties FROM jobs.event"
    )
    assert (topic, application) == ("packhorse/job/ADDED", "me")
    assert (properties["number"], properties["state"]) == (number, "QUEUED")
