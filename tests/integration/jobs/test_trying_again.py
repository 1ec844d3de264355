"""A job that waits for its next attempt: nothing of the last one holds it."""

import pytest

from packhorse.jobs.consumer import Outcome
from packhorse.jobs.job import JobState
from packhorse.jobs.store import finishing
from tests.harness.jobs.store import Store, numbers


@pytest.fixture
def store(database_url: str) -> Store:
    return Store(database_url)


def test_after_a_failure_it_is_nobodys_and_its_delay_begins_then(store: Store) -> None:
    number = store.add("free/a").job.number
    store.pass_time(1_000)
    worker = store.worker()
    [claimed] = worker.claim("free")
    worker.end(claimed, Outcome.FAILED, message="broken")
    job = store.job(number)
    assert (job.state, job.instance, job.started_at) == (JobState.QUEUED, None, None)
    assert job.result_message == "broken"
    assert claimed.job.started_at is not None
    assert job.ready_at > claimed.job.started_at
    assert store.rows("SELECT runtime_id FROM jobs.job") == [("",)]


def test_given_again_while_it_ran_it_is_last_in_its_line(store: Store) -> None:
    first, second = (store.add("line/a", "me", id=one).job.number for one in "xy")
    worker = store.worker()
    [claimed] = worker.claim("line")
    store.add("line/a", "me", id="x")
    assert worker.end(claimed).state is JobState.QUEUED
    [claimed] = worker.claim("line")
    assert claimed.job.number == second
    worker.end(claimed)
    assert numbers(worker.claim("line")) == [first]


def test_given_again_after_a_stop_was_requested_it_is_not_stopped(store: Store) -> None:
    number = store.add("free/a", "me", id="x").job.number
    worker = store.worker()
    [claimed] = worker.claim("free")
    with store.transaction() as connection:
        finishing.request_stop(connection, [number])
    store.add("free/a", "me", id="x")
    assert worker.end(claimed, Outcome.CANCEL).state is JobState.QUEUED
    assert numbers(worker.claim("free")) == [number]
    assert [one.stop_requested for one in worker.renew()] == [False]
