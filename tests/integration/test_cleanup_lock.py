"""One cleanup at a time: by hand, and as a job, whose worker may be paused or overtaken."""

import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from packhorse.jobs.store.claims import Claimed
from packhorse.jobs.work.attempt import RunningAttempt
from packhorse.jobs.work.context import AttemptContext
from packhorse.jobs.work.running_jobs import ResultQueue
from packhorse_services.cleanup.cleanup_lock import CleanupBusy, CleanupLockLost, acquire_lock
from packhorse_services.cleanup.report import RunState
from tests.harness.cleanup import Stage, staged
from tests.harness.jobs.store import Store
from tests.harness.waiting import eventually


@pytest.fixture
def stage(database_url: str, tmp_path: Path) -> Iterator[Stage]:
    with staged(database_url, tmp_path / "blobs") as stage:
        yield stage


@pytest.fixture
def store(database_url: str) -> Store:
    return Store(database_url)


def context_of(claimed: Claimed, store: Store) -> AttemptContext:
    """The context that the worker gives to the consumer of a job."""
    results = ResultQueue(store.transaction, threading.Event())
    return AttemptContext(RunningAttempt(claimed), results)


def test_by_hand_it_waits_for_no_job_and_is_alone(stage: Stage) -> None:
    assert stage.run().state is RunState.SUCCEEDED
    with acquire_lock(stage.url), pytest.raises(CleanupBusy):
        stage.run()


def test_nobody_takes_over_within_a_transaction(stage: Stage) -> None:
    taking_over = "SELECT FROM bookkeeping.cleanup FOR UPDATE NOWAIT"
    with acquire_lock(stage.url) as lock:
        with lock.transaction(), pytest.raises(psycopg.errors.LockNotAvailable):
            stage.database.execute(taking_over)
        stage.database.execute(taking_over)


def test_a_cleaner_that_is_paused_for_minutes_loses_its_session(stage: Stage) -> None:
    with acquire_lock(stage.url) as lock:
        assert lock.connection.execute("SHOW idle_session_timeout").fetchall() == [("5min",)]


def test_a_paused_cleaner_loses_its_session_with_the_lease_of_its_worker(
    stage: Stage, store: Store
) -> None:
    store.add("free/a")
    paused = store.worker()
    [claimed] = paused.claim("free")

    def goes_on() -> bool:
        try:
            return stage.run().state is RunState.SUCCEEDED
        except CleanupBusy:
            return False

    with acquire_lock(stage.url, context_of(claimed, store)) as lock:
        lock.check()
        assert not goes_on()
        paused.lose_lease()
        store.rescue()
        eventually(goes_on, what="the lock is free long before its own limit")
        with pytest.raises(psycopg.OperationalError):
            lock.check()


def test_a_job_that_was_taken_over_ends_the_run(stage: Stage, store: Store) -> None:
    store.add("free/a")
    worker = store.worker()
    [claimed] = worker.claim("free")
    with acquire_lock(stage.url, context_of(claimed, store)) as lock:
        lock.check()
        worker.end(claimed)
        with pytest.raises(CleanupLockLost, match="another instance's"):
            lock.check()
